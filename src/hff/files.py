"""Reading of JSON and YAML files that may be damaged: bounded in size, checked, one sentence per error."""

import json
import math
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from hff.errors import UserError, quoted, shortened

LARGEST_FILE = 64 * 2**20
"""The default bound on the size of a file in bytes."""
LARGEST_YAML = 256 * 2**10
"""Settings take a few kilobytes, and parsing YAML takes seconds per megabyte."""
DEEPEST = 50
"""The bound on nested lists and mappings."""
LARGEST_INTEGER = 2**63

Schema = Any
"""What a value must be: a type, a tuple of types, a `Check`, [schema] for a list, or a mapping from keys to
schemas. A key that ends with "?" is optional, and the key `...` stands for all keys that are not named."""
Check = Callable[[Any], bool]


def is_count(value: Any) -> bool:
    """Whether a value is a whole number of at least 0 that fits into 63 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < LARGEST_INTEGER


def is_size(value: Any) -> bool:
    """Whether a value is a whole number of at least 1 that fits into 63 bits."""
    return is_count(value) and value > 0


def is_finite(value: Any) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_duration(value: Any) -> bool:
    """Whether a value is a finite number of at least 0."""
    return is_finite(value) and value >= 0


def is_positive(value: Any) -> bool:
    """Whether a value is a finite number above 0."""
    return is_finite(value) and value > 0


def is_share(value: Any) -> bool:
    """Whether a value is a number from 0 to 1."""
    return is_finite(value) and 0 <= value <= 1


def optional(schema: Schema) -> Check:
    """Accepts None as well as the schema."""
    return lambda value: value is None or mismatch(value, schema) is None


def mismatch(value: Any, schema: Schema, place: str = "") -> str | None:
    """The place of the first part of a value that does not match a schema; None if the value matches."""
    if isinstance(schema, Mapping):
        return _mapping_mismatch(value, schema, place)
    if isinstance(schema, list):
        if not isinstance(value, list):
            return place or "the content"
        found = (mismatch(item, schema[0], f"{place}[{i}]") for i, item in enumerate(value))
        return next((each for each in found if each), None)
    if isinstance(schema, type | tuple):
        kinds = schema if isinstance(schema, tuple) else (schema,)
        matches = isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    else:
        matches = schema(value)
    return None if matches else place or "the content"


def _mapping_mismatch(value: Any, schema: Mapping[Any, Schema], place: str) -> str | None:
    if not isinstance(value, dict):
        return place or "the content"
    named = {key.removesuffix("?"): (key, each) for key, each in schema.items() if key is not ...}
    for name, (key, each) in named.items():
        inside = f"{place}.{name}" if place else name
        if name not in value:
            if key == name:
                return inside
        elif found := mismatch(value[name], each, inside):
            return found
    if ... in schema:
        for name, item in value.items():
            if name not in named and (found := mismatch(item, schema[...], f"{place}.{name}".lstrip("."))):
                return found
    return None


def read_text(path: Path, limit: int = LARGEST_FILE, source: str | None = None) -> str:
    """The content of a text file. A file that is too large is refused before it is read.

    Args:
        path: the file.
        limit: the largest size in bytes.
        source: what error messages call the file; by default its path.
    """
    source = source or str(path)
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise UserError(f"{source} cannot be read: it is not a file.")
        if about.st_size > limit:
            raise UserError(f"{source} has {about.st_size:,} bytes, but at most {limit:,} are possible.")
        with path.open("rb") as file:
            # Not `read(limit)`, which would allocate that much memory for the smallest file.
            text = file.read(min(limit, os.fstat(file.fileno()).st_size)).decode("utf-8")
    except OSError as error:
        raise UserError(f"{source} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{source} cannot be read: byte {error.start} is not UTF-8 text.") from None
    except ValueError:
        raise UserError(f"{source!a} is not a valid path: it contains a NUL character.") from None
    if "\0" in text:
        raise UserError(f"{source} cannot be read: it contains NUL characters.")
    return text


def read_json(path: Path, schema: Schema = dict, limit: int = LARGEST_FILE) -> dict[str, Any]:
    """Reads a JSON file with an object in it that matches a schema."""
    content = parse_json(read_text(path, limit), str(path))
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: it does not contain a JSON object.")
    check(content, schema, str(path))
    return content


def parse_json(text: str, source: str) -> Any:
    """The value in JSON text. Error messages call the text `source`."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise UserError(f"{source} is damaged: its values are nested too deeply.") from None
    except ValueError as error:
        raise UserError(f"{source} cannot be read ({shortened(str(error))}).") from None
    _check_plain(content, source)
    return content


def check(content: Any, schema: Schema, source: str) -> None:
    """Raises an error that names the first part of the content that does not match the schema."""
    place = mismatch(content, schema)
    if place is not None:
        raise UserError(f"{source} is damaged: {quoted(place)} is missing or has a wrong value.")


def read_yaml(path: Path) -> Any:
    """The value in a YAML file of settings."""
    return parse_yaml(read_text(path, LARGEST_YAML), str(path))


def parse_yaml(text: str, source: str) -> Any:
    """The value in YAML text of settings, without anchors and aliases. Error messages call it `source`."""
    if len(text) > LARGEST_YAML:
        raise UserError(f"{source} is too long: settings take at most {LARGEST_YAML:,} characters.")
    try:
        content = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" at line {mark.line + 1}" if mark else ""
        problem = shortened(str(getattr(error, "problem", None) or getattr(error, "reason", None) or ""))
        raise UserError(f"{source} is not valid YAML{place}{f' ({problem})' if problem else ''}.") from None
    except RecursionError:
        raise UserError(f"{source} is not valid: its values are nested too deeply.") from None
    except (ValueError, TypeError, ArithmeticError, LookupError, AttributeError) as error:
        # The constructors of numbers, dates and binary data raise many kinds of errors.
        raise UserError(f"{source} is not valid YAML ({shortened(str(error))}).") from None
    _check_plain(content, source)
    return content


def dump_yaml(content: Any) -> str:
    """YAML text that `parse_yaml` reads, in the order of the content."""
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False)


class _Loader(yaml.SafeLoader):
    """Builds plain values only. Aliases are refused: a few of them can stand for billions of values."""

    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            problem = "anchors and aliases are not supported"
            raise yaml.composer.ComposerError(None, None, problem, event.start_mark)
        self.depth += 1
        if self.depth > DEEPEST:
            raise yaml.composer.ComposerError(None, None, "nested too deeply", event.start_mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _check_plain(content: Any, source: str) -> None:
    """Refuses values that no setting or measurement has: huge whole numbers, and text that is not text."""
    waiting = [(content, 0)]
    while waiting:
        value, depth = waiting.pop()
        if depth > DEEPEST:
            raise UserError(f"{source} is not valid: its values are nested too deeply.")
        if isinstance(value, dict):
            waiting += [(each, depth + 1) for pair in value.items() for each in pair]
        elif isinstance(value, list):
            waiting += [(each, depth + 1) for each in value]
        elif isinstance(value, str):
            if "\0" in value or not _is_text(value):
                raise UserError(f"{source} is not valid: it contains {ascii(value)[:60]}, which is not text.")
        elif isinstance(value, int) and abs(value) >= LARGEST_INTEGER:
            raise UserError(f"{source} is not valid: it contains a whole number of more than 63 bits.")


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
