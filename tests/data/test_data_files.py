"""Fetching, from a server that stalls, breaks off and lies."""

import http.server
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_files import PUBLIC, md5, packed, write_cifar10, write_mnist

from hff.data import get, load_data, status
from hff.data.fetching.download import fetch
from hff.data.fetching.sources import IDX, Download, Source, sources
from hff.errors import UserError

CONTENT = np.random.default_rng(0).bytes(700_000)


@dataclass
class Server:
    """What is served, and how it misbehaves."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    behaviour: dict[str, str] = field(default_factory=dict)
    """For a path: stall, cut, cut once, lie, ignore range, or fail."""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Each path with its Range header."""
    released: threading.Event = field(default_factory=threading.Event)

    def item(self, *paths: str, content: bytes = CONTENT, **options: Any) -> Download:
        """A download of one file, under its name at each path."""
        for path in paths:
            self.files.setdefault(path, content)
        urls = tuple(f"{self.address}/{path}" for path in paths)
        return Download(Path(paths[0]).name, urls, md5(content), **options)


class Handler(http.server.BaseHTTPRequestHandler):
    state: Server

    def do_GET(self) -> None:
        path = self.path.lstrip("/")
        wanted = self.headers.get("Range")
        behaviour = self.state.behaviour.get(path, "")
        self.state.requests.append((path, wanted))
        if behaviour == "fail" or path not in self.state.files:
            self.send_error(404)
            return
        content = self.state.files[path]
        if behaviour == "lie":
            content = b"<html>log in first</html>"
        start = int(re.findall(r"\d+", wanted)[0]) if wanted and behaviour != "ignore range" else 0
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        if behaviour == "cut once":
            self.state.behaviour[path] = ""
        if behaviour in ("cut", "cut once", "stall"):
            rest = rest[: min(300_000, len(rest) // 2)]
        self.wfile.write(rest)
        self.wfile.flush()
        if behaviour == "stall":
            self.state.released.wait(10)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    handler = type("StatefulHandler", (Handler,), {"state": state})
    http_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http_server.daemon_threads = True
    thread = threading.Thread(target=http_server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    state.address = f"http://127.0.0.1:{http_server.server_address[1]}"
    yield state
    state.released.set()
    http_server.shutdown()
    http_server.server_close()


def only(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_whole_file_with_progress(server: Server, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    path = fetch(server.item("a.bin"), tmp_path / "new", lambda *step: told.append(step))
    assert path.read_bytes() == CONTENT
    assert only(tmp_path / "new") == ["a.bin"]
    assert told[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in told] == sorted(done for _, done, _ in told)
    assert len(told) > 1


def test_broken_off_and_continued(server: Server, tmp_path: Path) -> None:
    server.behaviour["a.bin"] = "cut once"
    assert fetch(server.item("a.bin"), tmp_path, pause=0).read_bytes() == CONTENT
    assert server.requests == [("a.bin", None), ("a.bin", "bytes=300000-")]


def test_continued_on_another_day(server: Server, tmp_path: Path) -> None:
    server.behaviour["a.bin"] = "cut"
    item = server.item("a.bin")
    with pytest.raises(UserError, match="broke off after 300000 of 700000 bytes"):
        fetch(item, tmp_path, rounds=1)
    assert only(tmp_path) == ["a.bin.part"]
    server.behaviour.clear()
    assert fetch(item, tmp_path, rounds=1).read_bytes() == CONTENT
    assert server.requests[-1] == ("a.bin", "bytes=300000-")
    assert only(tmp_path) == ["a.bin"]


def test_continued_from_another_address(server: Server, tmp_path: Path) -> None:
    server.behaviour["a.bin"] = "stall"
    item = server.item("a.bin", "mirror/a.bin")
    assert fetch(item, tmp_path, timeout=0.5, rounds=1).read_bytes() == CONTENT
    assert server.requests[-1] == ("mirror/a.bin", "bytes=300000-")


def test_stalled(server: Server, tmp_path: Path) -> None:
    server.behaviour["a.bin"] = "stall"
    with pytest.raises(UserError, match=r"a\.bin could not be fetched .*timed out"):
        fetch(server.item("a.bin"), tmp_path, timeout=0.5, rounds=1)
    assert only(tmp_path) == ["a.bin.part"]


def test_a_server_that_ignores_the_range(server: Server, tmp_path: Path) -> None:
    server.behaviour["a.bin"] = "ignore range"
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:1000])
    assert fetch(server.item("a.bin"), tmp_path, rounds=1).read_bytes() == CONTENT


def test_wrong_bytes_are_deleted_and_the_next_address_is_tried(server: Server, tmp_path: Path) -> None:
    server.behaviour["a.bin"] = "lie"
    assert fetch(server.item("a.bin", "mirror/a.bin"), tmp_path, rounds=1).read_bytes() == CONTENT
    with pytest.raises(UserError, match=r"wrong checksum, which was deleted"):
        fetch(replace(server.item("b.bin"), md5="0" * 32), tmp_path, rounds=1)
    assert only(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("length", [1000, len(CONTENT), len(CONTENT) + 5])
def test_a_spoilt_part_is_given_up(server: Server, tmp_path: Path, length: int) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"x" * length)
    assert fetch(server.item("a.bin"), tmp_path, pause=0).read_bytes() == CONTENT


def test_a_part_that_is_complete_needs_its_name_only(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert fetch(server.item("a.bin"), tmp_path).read_bytes() == CONTENT
    assert only(tmp_path) == ["a.bin"]


def test_an_address_that_does_not_exist(server: Server, tmp_path: Path) -> None:
    server.behaviour["a.bin"] = "fail"
    item = server.item("a.bin")
    with pytest.raises(UserError, match="Not Found"):
        fetch(item, tmp_path, rounds=1)
    nobody = replace(item, urls=("http://127.0.0.1:9/a.bin",))
    with pytest.raises(UserError, match="refused"):
        fetch(nobody, tmp_path, rounds=2, pause=0)


def test_what_is_there_is_not_fetched_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    fetch(server.item("a.bin"), tmp_path)
    assert server.requests == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").symlink_to("/dev/full")
    with pytest.raises(UserError, match="The disk is full; make room"):
        fetch(server.item("a.bin"), tmp_path)
    assert len(server.requests) == 1
    assert only(tmp_path) == ["a.bin.part"]


def test_a_file_in_the_way_of_the_folder(server: Server, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="cannot be written to"):
        fetch(server.item("a.bin"), tmp_path / "taken")


def test_get_an_archive(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cifar10(tmp_path / "made")
    item = server.item("cifar.tar.gz", content=packed(tmp_path / "made", "cifar"), unpacks_to="cifar")
    monkeypatch.setitem(sources, "cifar10", replace(sources["cifar10"], downloads=(item,)))
    assert status("cifar10") == {"path": None, "source": "not found"}
    folder = get("cifar10")
    assert folder == tmp_path / "cache" / "cifar-10-batches-py"
    assert only(tmp_path / "cache") == ["cifar-10-batches-py"]
    assert status("cifar10") == {"path": str(folder), "source": "cache"}
    assert get("cifar10") == folder
    assert len(server.requests) == 1
    assert len(load_data("cifar10", validation=0).train) == 50


def mnist_source(server: Server, folder: Path) -> Source:
    write_mnist(folder, compressed=True)
    items = [server.item(f"{name}.gz", content=(folder / f"{name}.gz").read_bytes()) for name in IDX]
    return replace(sources["mnist"], downloads=tuple(items), package=None)


def test_load_fetches_what_is_missing(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sources, "mnist", mnist_source(server, tmp_path / "made"))
    told = set()
    folder = get("mnist", tmp_path / "mine", lambda name, done, total: told.add(name))
    assert folder == tmp_path / "mine" / "mnist"
    assert told == {f"{name}.gz" for name in IDX}
    (folder / f"{IDX[3]}.gz").unlink()
    server.requests.clear()
    assert len(load_data("mnist", data_dir=tmp_path / "mine", validation=0).train) == 40
    assert server.requests == [(f"{IDX[3]}.gz", None)]


def test_two_at_once_fetch_once(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fcntl")
    monkeypatch.setitem(sources, "mnist", mnist_source(server, tmp_path / "made"))
    threads = [threading.Thread(target=get, args=("mnist",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 4
    assert status("mnist")["source"] == "cache"


def test_where_files_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = tmp_path / "system"
    monkeypatch.setitem(sources, "fashion_mnist", replace(sources["fashion_mnist"], system=(system,)))
    write_mnist(system / "fashion-mnist", compressed=True)
    assert status("fashion_mnist")["source"] == "system"
    write_mnist(tmp_path / "cache" / "fashion_mnist")
    assert status("fashion_mnist")["source"] == "cache"
    write_mnist(tmp_path / "environment" / "fashion_mnist")
    monkeypatch.setenv("HFF_DATA", str(tmp_path / "environment"))
    assert status("fashion_mnist")["source"] == "HFF_DATA"
    write_mnist(tmp_path / "given" / "fashion_mnist")
    assert status("fashion_mnist", tmp_path / "given")["source"] == "data_dir"
    assert status("fashion_mnist", tmp_path / "given" / "fashion_mnist")["source"] == "data_dir"
    (tmp_path / "given" / "fashion_mnist" / IDX[0]).unlink()
    assert status("fashion_mnist", tmp_path / "given")["source"] == "HFF_DATA"


def test_nothing_to_fetch() -> None:
    with pytest.raises(UserError, match="scikit-learn"):
        get("digits")
    with pytest.raises(UserError, match="your own data"):
        get("folder")
    with pytest.raises(UserError, match=r"image-net\.org"):
        get("imagenet")
    with pytest.raises(UserError, match="did you mean 'mnist'"):
        get("mnst")
    assert status("npz") == {"path": None, "source": "your own data"}


def test_every_public_source_has_addresses_and_checksums() -> None:
    for name in ("mnist", "fashion_mnist", "cifar10", "cifar100"):
        assert PUBLIC[name].downloads
        for item in PUBLIC[name].downloads:
            assert re.fullmatch("[0-9a-f]{32}", item.md5)
            assert item.urls
            assert all(url.endswith(item.file) for url in item.urls)
        assert PUBLIC[name].downloads[0].unpacks_to in ("", PUBLIC[name].folders[0])
