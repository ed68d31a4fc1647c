"""Headless Chromium for the tests of the pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.servers.processes import find_program

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str:
    """Return the path of the browser; skip the test if there is none."""
    return find_program("Chromium", "chromium", "chromium-browser")


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser for as long as the context lasts."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield made
        finally:
            made.close()
