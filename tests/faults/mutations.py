"""Seeded damage to files. The same content and the same seed always give the same damage."""

import contextlib
import pickletools
import random
import re
from collections.abc import Callable
from pathlib import Path

Mutation = Callable[[bytes, random.Random], bytes]

HOSTILE = (
    b"-1",
    b"0",
    b"1e999",
    b"-1e308",
    b"1e-320",
    b"NaN",
    b".nan",
    b"Infinity",
    b"9223372036854775807",
    b"-9223372036854775809",
    b"1" + b"0" * 30,
    b"9" * 5000,
    b"99999999999",
    b"1.5",
    b"true",
    b"null",
    b"~",
    b"''",
    b'""',
    b"[]",
    b"{}",
    b"[1, [2, [3]]]",
    b'{"a": {"b": 1}}',
    b"[" * 3000 + b"]" * 3000,
    b'{"a":' * 3000 + b"1" + b"}" * 3000,
    b"\0",
    b"a\0b",
    b'"\\u0000"',
    b'"\\ud800"',
    b"\xed\xa0\x80",
    b"\xff\xfe",
    b'"' + b"x" * 100_000 + b'"',
    b"../../../../etc/passwd",
    b"2001-13-45",
    b"0o777",
    b"1_000",
    b"*alias",
    b"&anchor 1",
    b"!!binary '='",
    b"!!timestamp x",
    b"<<: {a: 1}",
    b"? a",
    b"- - - -",
    b"%YAML 9.9",
    b"\r\n\t",
    b"\xe2\x80\xa8",
)
"""Values that a text file of settings or results should not hold."""

TOKEN = re.compile(rb"\"[^\"\n]*\"|[^\s,:{}\[\]\"]+")
KEY = re.compile(rb"\"(\w+)\":|^ *(\w+):", re.MULTILINE)


def flip_bit(content: bytes, draw: random.Random) -> bytes:
    changed, place = bytearray(content), draw.randrange(len(content))
    changed[place] ^= 1 << draw.randrange(8)
    return bytes(changed)


def replace_byte(content: bytes, draw: random.Random) -> bytes:
    changed, place = bytearray(content), draw.randrange(len(content))
    changed[place] = draw.choice((0, 1, 127, 128, 255, draw.randrange(256)))
    return bytes(changed)


def overwrite(content: bytes, draw: random.Random) -> bytes:
    start, end = _chunk(content, draw)
    return content[:start] + draw.randbytes(end - start) + content[end:]


def truncate(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def insert(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content) + 1)
    return content[:place] + draw.randbytes(draw.choice((1, 1, 2, 8, 100))) + content[place:]


def duplicate(content: bytes, draw: random.Random) -> bytes:
    start, end = _chunk(content, draw)
    return content[:end] + content[start:]


def remove(content: bytes, draw: random.Random) -> bytes:
    start, end = _chunk(content, draw)
    return content[:start] + content[end:]


def swap(content: bytes, draw: random.Random) -> bytes:
    """Exchanges two neighboring chunks."""
    start, middle, end = sorted(draw.randrange(len(content) + 1) for _ in range(3))
    return content[:start] + content[middle:end] + content[start:middle] + content[end:]


def zero(content: bytes, draw: random.Random) -> bytes:
    """Clears a chunk, as a crash of a file system can do."""
    start, end = _chunk(content, draw)
    return content[:start] + bytes(end - start) + content[end:]


def empty(content: bytes, draw: random.Random) -> bytes:
    return b""


def noise(content: bytes, draw: random.Random) -> bytes:
    return draw.randbytes(draw.choice((1, 16, len(content))))


def huge_number(content: bytes, draw: random.Random) -> bytes:
    """Replaces four or eight bytes with a large number, which may be a size or an offset."""
    width = draw.choice((4, 8))
    number = draw.choice((2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1)) % 2 ** (8 * width)
    place = draw.randrange(max(1, min(len(content), draw.choice((16, 200, len(content))))))
    return content[:place] + number.to_bytes(width, draw.choice(("little", "big"))) + content[place + width :]


def replace_token(content: bytes, draw: random.Random) -> bytes:
    """Replaces a word, a number or a text with a hostile value."""
    start, end = _token(content, draw)
    return content[:start] + draw.choice(HOSTILE) + content[end:]


def exchange_tokens(content: bytes, draw: random.Random) -> bytes:
    """Exchanges two words, numbers or texts."""
    (a, b), (c, d) = sorted((_token(content, draw), _token(content, draw)))
    if a == c:
        return remove(content, draw)
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def exchange_keys(content: bytes, draw: random.Random) -> bytes:
    """Exchanges the names of two settings everywhere, or one name with an unknown name."""
    keys = [found[1] or found[2] for found in KEY.finditer(content)]
    if not keys:
        return remove(content, draw)
    names = {draw.choice(keys): draw.choice((*keys, b"unknown"))}
    names |= {other: one for one, other in names.items()}
    return re.sub(rb"\b(?:" + b"|".join(names) + rb")\b", lambda found: names[found[0]], content)


def shuffle_lines(content: bytes, draw: random.Random) -> bytes:
    """Removes, repeats or moves a line."""
    lines = content.splitlines(keepends=True)
    line = lines.pop(draw.randrange(len(lines)))
    for _ in range(draw.randrange(3)):
        lines.insert(draw.randrange(len(lines) + 1), line)
    return b"".join(lines)


BYTES: tuple[Mutation, ...] = (
    *(flip_bit, flip_bit, flip_bit, replace_byte, overwrite, truncate, insert, duplicate, remove, swap),
    *(zero, huge_number, huge_number, empty, noise),
)
"""For files in any format."""

TEXT: tuple[Mutation, ...] = (
    *(replace_token, replace_token, replace_token, replace_token, exchange_tokens, exchange_keys),
    *(shuffle_lines, flip_bit, replace_byte, truncate, insert, duplicate, remove, swap, zero, empty, noise),
)
"""For files in YAML or JSON."""


def mutate(content: bytes, seed: int, mutations: tuple[Mutation, ...]) -> tuple[str, bytes]:
    """The name of the mutation that belongs to a seed, and the damaged content, which always differs.

    One in five seeds damages the content twice.
    """
    draw = random.Random(seed)
    changed, names = content, []
    while changed == content or (draw.random() < 0.2 and len(names) < 2 and changed.strip()):
        mutation = draw.choice(mutations)
        names.append(mutation.__name__)
        changed = mutation(changed, draw)
    return "+".join(names), changed


def _chunk(content: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randrange(len(content))
    return start, min(len(content), start + draw.choice((1, 2, 4, 16, 64, len(content))))


def _token(content: bytes, draw: random.Random) -> tuple[int, int]:
    """The start and end of a word, a number or a text; of a single byte if there is none."""
    tokens = [found.span() for found in TOKEN.finditer(content)]
    return draw.choice(tokens) if tokens else (0, 1)


def pickle_payload(marker: Path) -> Mutation:
    """Inserts a call that writes the marker between two instructions of a pickle."""
    calls = (
        f"cposix\nsystem\n(S'touch {marker}'\ntR",
        f"cbuiltins\nopen\n(S'{marker}'\nS'w'\ntR",
        f"(S'touch {marker}'\nios\nsystem\n",
        f"cbuiltins\neval\n(S'open({str(marker)!r}, \"w\")'\ntR",
    )

    def call_a_function(content: bytes, draw: random.Random) -> bytes:
        places = [0]
        with contextlib.suppress(Exception):
            places += [place or 0 for _, _, place in pickletools.genops(content)]
        place = draw.choice(places)
        # What the call returns is dropped, is kept, or is the whole content of the file.
        return (
            content[:place] + draw.choice(calls).encode() + draw.choice((b"0", b"", b".")) + content[place:]
        )

    return call_a_function


def yaml_payload(marker: Path) -> Mutation:
    """Replaces a value with a tag that would write the marker."""
    tags = (
        f"!!python/object/apply:os.system ['touch {marker}']",
        f"!!python/object/new:os.system ['touch {marker}']",
        f"!!python/object/apply:builtins.open ['{marker}', 'w']",
        "!!python/name:os.system",
        "!!python/module:this",
    )

    def call_a_tag(content: bytes, draw: random.Random) -> bytes:
        start, end = _token(content, draw)
        return content[:start] + draw.choice(tags).encode() + content[end:]

    return call_a_tag
