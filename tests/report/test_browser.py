"""The page of a report in a real browser: light, dark and printed. Skipped where there is no Chromium."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hff.report import ReportFiles

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = os.environ.get("CHROMIUM") or next((name for name in NAMES if shutil.which(name)), None)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
SIZE = (1200, 3000)
DARK = ("--force-dark-mode", "--blink-settings=preferredColorScheme=0")

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="Chromium is not installed; `make browser` installs it on Debian."
)


def browse(files: ReportFiles, folder: Path, *flags: str) -> str:
    """Opens the page with these flags and returns what the browser prints."""
    assert BROWSER is not None
    command = [
        BROWSER,
        *FLAGS,
        f"--user-data-dir={folder / 'profile'}",
        *flags,
        files.page.resolve().as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


def screenshot(files: ReportFiles, folder: Path, *flags: str) -> np.ndarray:
    path = folder / "page.png"
    size = f"--window-size={SIZE[0]},{SIZE[1]}"
    browse(files, folder, f"--screenshot={path}", size, *flags)
    return np.asarray(Image.open(path).convert("L"), dtype=float)


@pytest.mark.slow
@pytest.mark.parametrize(("flags", "background"), [((), 255), (DARK, 24)], ids=["light", "dark"])
def test_the_page_is_readable(
    one: ReportFiles, tmp_path: Path, flags: tuple[str, ...], background: int
) -> None:
    page = screenshot(one, tmp_path, *flags)
    assert page.shape == SIZE[::-1]
    assert np.median(page) == pytest.approx(background, abs=4)
    # Text and figures are all over the page, and their darkest parts stand out from the background.
    for part in np.split(page, 6):
        assert np.abs(part - background).max() > 150
        assert part.std() > 5


@pytest.mark.slow
def test_nothing_is_wider_than_a_narrow_screen(one: ReportFiles, tmp_path: Path) -> None:
    """The browser computes the widths: only tables and code may scroll inside themselves."""
    script = (
        "<script>document.title = [document.documentElement.scrollWidth, innerWidth, "
        "document.querySelectorAll('svg[role=img]').length].join(' ')</script>"
    )
    copy = tmp_path / "report.html"
    copy.write_text(one.page.read_text(encoding="utf-8").replace("</body>", f"{script}</body>"))
    narrow = ReportFiles(copy, one.markdown, one.table, one.figures, one.document)
    text = browse(narrow, tmp_path, "--dump-dom", "--window-size=500,900")
    width, window, pictures = map(int, text.partition("<title>")[2].partition("</title>")[0].split())
    assert width <= window
    assert pictures == len(one.figures)


@pytest.mark.slow
def test_the_page_can_be_printed(one: ReportFiles, tmp_path: Path) -> None:
    path = tmp_path / "report.pdf"
    browse(one, tmp_path, f"--print-to-pdf={path}", "--no-pdf-header-footer")
    content = path.read_bytes()
    assert content.startswith(b"%PDF")
    assert content.count(b"/Type /Page\n") + content.count(b"/Type /Page ") >= 2
