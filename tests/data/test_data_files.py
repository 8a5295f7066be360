"""Finding files, and downloading them from a server that stalls, disconnects or serves wrong content."""

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_files import ChangeSource, md5, packed, write_cifar10, write_mnist

from hff.data import Download, datasets, get, load_data, needs_download, status
from hff.data.fetching.download import download
from hff.data.readers.idx import IDX_FILES
from hff.errors import UserError

PUBLIC = {name: info.source for name, info in datasets.items() if info.source and info.source.downloads}
"""The sources before a test changes them."""

CONTENT = np.random.default_rng(0).bytes(700_000)


@dataclass
class Server:
    """The files that a server offers, and how it misbehaves."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    behavior: dict[str, str] = field(default_factory=dict)
    """By path: stall, disconnect, disconnect once, wrong content, ignore range, endless, announce or fail."""
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Each path with its Range header."""
    released: threading.Event = field(default_factory=threading.Event)

    def item(self, *paths: str, content: bytes = CONTENT, **options: Any) -> Download:
        """A file to download that has several addresses."""
        for path in paths:
            self.files.setdefault(path, content)
        urls = tuple(f"{self.address}/{path}" for path in paths)
        return Download(Path(paths[0]).name, urls, md5(content), **options)


class Handler(http.server.BaseHTTPRequestHandler):
    state: Server

    def do_GET(self) -> None:
        path = self.path.lstrip("/")
        wanted = self.headers.get("Range")
        behavior = self.state.behavior.get(path, "")
        self.state.requests.append((path, wanted))
        if behavior == "fail" or path not in self.state.files:
            self.send_error(404)
            return
        content = self.state.files[path]
        if behavior == "wrong content":
            content = b"<html>log in first</html>"
        start = int(re.findall(r"\d+", wanted)[0]) if wanted and behavior != "ignore range" else 0
        if start and start >= len(content):
            self.send_error(416)
            return
        if behavior == "endless":
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while not self.state.released.is_set():
                    self.wfile.write(bytes(1 << 16))
            return
        if behavior == "announce":
            self.send_response(200)
            self.send_header("Content-Length", str(10**12))
            self.end_headers()
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        rest = content[start:]
        if behavior == "disconnect once":
            self.state.behavior[path] = ""
        if behavior in ("disconnect", "disconnect once", "stall"):
            rest = rest[: min(300_000, len(rest) // 2)]
        self.wfile.write(rest)
        self.wfile.flush()
        if behavior == "stall":
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


def test_download_with_progress(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    path = download(server.item("a.bin"), tmp_path / "new", lambda *step: seen.append(step))
    assert path.read_bytes() == CONTENT
    assert only(tmp_path / "new") == ["a.bin"]
    assert seen[-1] == ("a.bin", len(CONTENT), len(CONTENT))
    assert [done for _, done, _ in seen] == sorted(done for _, done, _ in seen)
    assert len(seen) > 1


def test_an_interrupted_download_is_resumed(server: Server, tmp_path: Path) -> None:
    server.behavior["a.bin"] = "disconnect once"
    assert download(server.item("a.bin"), tmp_path, pause=0).read_bytes() == CONTENT
    assert server.requests == [("a.bin", None), ("a.bin", "bytes=300000-")]


def test_a_later_call_resumes_the_download(server: Server, tmp_path: Path) -> None:
    server.behavior["a.bin"] = "disconnect"
    item = server.item("a.bin")
    with pytest.raises(UserError, match="broke after 300000 of 700000 bytes"):
        download(item, tmp_path, rounds=1)
    assert only(tmp_path) == ["a.bin.part"]
    server.behavior.clear()
    assert download(item, tmp_path, rounds=1).read_bytes() == CONTENT
    assert server.requests[-1] == ("a.bin", "bytes=300000-")
    assert only(tmp_path) == ["a.bin"]


def test_another_address_resumes_the_download(server: Server, tmp_path: Path) -> None:
    server.behavior["a.bin"] = "stall"
    item = server.item("a.bin", "mirror/a.bin")
    assert download(item, tmp_path, timeout=0.5, rounds=1).read_bytes() == CONTENT
    assert server.requests[-1] == ("mirror/a.bin", "bytes=300000-")


def test_a_stalled_download_times_out(server: Server, tmp_path: Path) -> None:
    server.behavior["a.bin"] = "stall"
    with pytest.raises(UserError, match=r"a\.bin could not be downloaded .*timed out"):
        download(server.item("a.bin"), tmp_path, timeout=0.5, rounds=1)
    assert only(tmp_path) == ["a.bin.part"]


def test_a_server_that_ignores_the_range(server: Server, tmp_path: Path) -> None:
    server.behavior["a.bin"] = "ignore range"
    (tmp_path / "a.bin.part").write_bytes(CONTENT[:1000])
    assert download(server.item("a.bin"), tmp_path, rounds=1).read_bytes() == CONTENT


def test_wrong_content_is_deleted_and_the_next_address_is_tried(server: Server, tmp_path: Path) -> None:
    server.behavior["a.bin"] = "wrong content"
    assert download(server.item("a.bin", "mirror/a.bin"), tmp_path, rounds=1).read_bytes() == CONTENT
    with pytest.raises(UserError, match=r"wrong checksum, which was deleted"):
        download(replace(server.item("b.bin"), md5="0" * 32), tmp_path, rounds=1)
    assert only(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("length", [1000, len(CONTENT), len(CONTENT) + 5])
def test_a_damaged_partial_file_is_replaced(server: Server, tmp_path: Path, length: int) -> None:
    (tmp_path / "a.bin.part").write_bytes(b"x" * length)
    assert download(server.item("a.bin"), tmp_path, pause=0).read_bytes() == CONTENT


def test_a_complete_partial_file_is_renamed(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    assert download(server.item("a.bin"), tmp_path).read_bytes() == CONTENT
    assert only(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("known", [True, False])
def test_a_server_that_never_stops_is_cut_off(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr("hff.data.fetching.download.MAX_BYTES", 800_000)
    server.behavior["a.bin"] = "endless"
    limit = len(CONTENT) if known else 800_000
    item = replace(server.item("a.bin"), size=len(CONTENT) if known else None)
    with pytest.raises(UserError, match=f"sends more than the {limit} bytes of the file"):
        download(item, tmp_path, rounds=1)
    assert only(tmp_path) == []
    assert (
        download(
            replace(server.item("a.bin", "mirror/a.bin"), size=item.size), tmp_path, rounds=1
        ).read_bytes()
        == CONTENT
    )


def test_a_server_that_announces_too_much_is_not_read(server: Server, tmp_path: Path) -> None:
    server.behavior["a.bin"] = "announce"
    with pytest.raises(UserError, match="offers 1000000000000 bytes, more than the 700000 bytes of"):
        download(replace(server.item("a.bin"), size=len(CONTENT)), tmp_path, rounds=1)
    assert only(tmp_path) == []


def test_an_address_without_the_file(server: Server, tmp_path: Path) -> None:
    server.behavior["a.bin"] = "fail"
    item = server.item("a.bin")
    with pytest.raises(UserError, match="Not Found"):
        download(item, tmp_path, rounds=1)
    nobody = replace(item, urls=("http://127.0.0.1:9/a.bin",))
    with pytest.raises(UserError, match="refused"):
        download(nobody, tmp_path, rounds=2, pause=0)


def test_an_existing_file_is_not_downloaded_again(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(CONTENT)
    download(server.item("a.bin"), tmp_path)
    assert server.requests == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_full_disk(server: Server, tmp_path: Path) -> None:
    (tmp_path / "a.bin.part").symlink_to("/dev/full")
    with pytest.raises(UserError, match="The disk is full; free some space"):
        download(server.item("a.bin"), tmp_path)
    assert len(server.requests) == 1
    assert only(tmp_path) == ["a.bin.part"]


def test_a_file_with_the_name_of_the_folder(server: Server, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="cannot be written to"):
        download(server.item("a.bin"), tmp_path / "taken")


def test_get_downloads_and_unpacks_an_archive(
    server: Server, tmp_path: Path, change_source: ChangeSource
) -> None:
    write_cifar10(tmp_path / "made")
    item = server.item("cifar.tar.gz", content=packed(tmp_path / "made", "cifar"), unpacks_to="cifar")
    change_source("cifar10", downloads=(item,))
    assert status("cifar10") == {"path": None, "source": "not found"}
    folder = get("cifar10")
    assert folder == tmp_path / "cache" / "cifar-10-batches-py"
    assert only(tmp_path / "cache") == ["cifar-10-batches-py"]
    assert status("cifar10") == {"path": str(folder), "source": "cache"}
    assert get("cifar10") == folder
    assert len(server.requests) == 1
    assert len(load_data("cifar10", validation=0).train) == 50


def mnist_downloads(server: Server, folder: Path) -> tuple[Download, ...]:
    write_mnist(folder, compressed=True)
    contents = {f"{name}.gz": (folder / f"{name}.gz").read_bytes() for name in IDX_FILES}
    return tuple(server.item(file, content=content) for file, content in contents.items())


def test_load_data_downloads_missing_files(
    server: Server, tmp_path: Path, change_source: ChangeSource
) -> None:
    change_source("mnist", downloads=mnist_downloads(server, tmp_path / "made"), package=None)
    seen = set()
    folder = get("mnist", tmp_path / "mine", lambda name, done, total: seen.add(name))
    assert folder == tmp_path / "mine" / "mnist"
    assert seen == {f"{name}.gz" for name in IDX_FILES}
    (folder / f"{IDX_FILES[3]}.gz").unlink()
    server.requests.clear()
    assert len(load_data("mnist", data_dir=tmp_path / "mine", validation=0).train) == 40
    assert server.requests == [(f"{IDX_FILES[3]}.gz", None)]


def test_concurrent_calls_download_once(server: Server, tmp_path: Path, change_source: ChangeSource) -> None:
    pytest.importorskip("fcntl")
    change_source("mnist", downloads=mnist_downloads(server, tmp_path / "made"), package=None)
    threads = [threading.Thread(target=get, args=("mnist",)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(server.requests) == 4
    assert status("mnist")["source"] == "cache"


def test_order_of_the_searched_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change_source: ChangeSource
) -> None:
    system = tmp_path / "system"
    change_source("fashion_mnist", system=(system,))
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
    (tmp_path / "given" / "fashion_mnist" / IDX_FILES[0]).unlink()
    assert status("fashion_mnist", tmp_path / "given")["source"] == "HFF_DATA"


def test_get_of_data_without_downloads() -> None:
    with pytest.raises(UserError, match="scikit-learn"):
        get("digits")
    with pytest.raises(UserError, match="your own data"):
        get("folder")
    with pytest.raises(UserError, match=r"image-net\.org"):
        get("imagenet")
    with pytest.raises(UserError, match="did you mean 'mnist'"):
        get("mnst")
    assert status("npz") == {"path": None, "source": "your own data"}


def test_every_download_has_addresses_and_a_checksum() -> None:
    assert list(PUBLIC) == ["mnist", "fashion_mnist", "cifar10", "cifar100"]
    for source in PUBLIC.values():
        for item in source.downloads:
            assert re.fullmatch("[0-9a-f]{32}", item.md5)
            assert item.urls
            assert all(url.endswith(item.file) for url in item.urls)
        assert source.downloads[0].unpacks_to in ("", source.folders[0])


def test_needs_download(tmp_path: Path) -> None:
    assert needs_download("mnist", tmp_path)
    write_mnist(tmp_path / "mnist")
    assert not needs_download("mnist", tmp_path)
    assert needs_download("imagenet")
    assert not needs_download("imagenet", path=tmp_path)
    assert not needs_download("digits")
    assert not needs_download("folder")
