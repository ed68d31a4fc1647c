"""Every screen, looked through by axe-core: roles, names, headings, contrast as it is drawn.

What axe cannot judge is text over lines in drawings; `test_style` computes its contrast.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.ui.browsers import browser
from tests.ui.conftest import Site
from tests.ui.gallery import COMMON, bring, gallery, screens

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.server
SIZES = {"five": 5, "fifty": 50}
LOOK = """async () => (await axe.run()).violations.flatMap((rule) => rule.nodes.map((node) =>
  `${rule.id}: ${node.html.slice(0, 120)} ${node.failureSummary}`))"""


@pytest.fixture(scope="module")
def axe() -> str:
    """The text of axe-core, which a package of Python carries."""
    package = find_spec("axe_playwright_python")
    if package is None or package.origin is None:
        raise ModuleNotFoundError(name="axe_playwright_python")
    return Path(package.origin).with_name("axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shops() -> Iterator[Site]:
    with gallery(SIZES) as site:
        yield site


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as made:
        yield made


def findings(page: Page, axe: str) -> list[str]:
    """Return what axe-core objects to; figures that come meanwhile may move what it looks at."""
    page.evaluate(f"{axe};0")
    return list(page.evaluate(LOOK))


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_axe_has_no_findings(
    chrome: Browser, shops: Site, axe: str, width: int, scheme: Any
) -> None:
    context = chrome.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
    try:
        page = context.new_page()
        page.goto(shops.url)
        page.get_by_label("token").wait_for()
        assert findings(page, axe) == [], "login"
        page.goto(shops.server.link("operate"))
        large = {name: screens("fifty")[name] for name in ("overview", "plan")}
        for shown in (COMMON, screens("five"), large):
            for screen, (path, act) in shown.items():
                bring(page, shops.url, path, act)
                assert findings(page, axe) == [], screen
        pale = "document.querySelector('.tile .label').style.color = '#808080'"
        bring(page, shops.url, "topology/five", None)
        page.evaluate(f"{pale}; document.querySelector('h1').innerHTML = '<button></button>'")
        rules = {each.partition(":")[0] for each in findings(page, axe)}
        assert {"color-contrast", "button-name"} <= rules
    finally:
        context.close()
