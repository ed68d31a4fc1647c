"""A hook of mkdocs that adds pages to their directory's section if `nav` does not list them.

So a new page needs no line in mkdocs.yml, and two branches that add pages do not conflict; a line
decides the place and the title of a page. Decisions are listed by their own index.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

_NOT_LISTED = "internals/decisions/0"


def on_config(config: Any) -> Any:
    docs = Path(config["docs_dir"])
    listed = set(_pages(config["nav"]))
    for path in sorted(docs.rglob("*.md")):
        page = path.relative_to(docs).as_posix()
        if page not in listed and not page.startswith(_NOT_LISTED):
            _section(config["nav"], PurePosixPath(page).parent.name).append(page)
    return config


def _pages(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, dict):
        yield from _pages(list(nav.values()))
    else:
        for entry in nav:
            yield from _pages(entry)


def _section(nav: list[Any], directory: str) -> list[Any]:
    """Return the entries of the section of a directory; add one if there is none."""
    for entry in nav if directory else ():
        for pages in entry.values() if isinstance(entry, dict) else ():
            if isinstance(pages, list) and f"{directory}/" in next(_pages(pages), ""):
                return pages
    if not directory:
        return nav
    pages: list[Any] = []
    nav.insert(-2, {directory.capitalize(): pages})
    return pages
