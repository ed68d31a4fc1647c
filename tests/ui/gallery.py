"""Pictures of every screen of the web pages, for whoever changes them to look at.

`python -m tests.ui.gallery DIRECTORY [NAME ...]` writes a PNG of each screen at 1280 and 390
pixels, light and dark, of topologies with 5, 50 and 200 components; with names, of these screens
only. The same screens are what `test_axe` looks through.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from tests.ui.browsers import browser
from tests.ui.busy import add_busy
from tests.ui.conftest import Site, serving
from tests.ui.roles import add_desk
from tests.ui.worlds import World, decision, world_in
from topo.manage.commands import CommandFailed
from topo.manage.views import StacksView, StackView, StateView, ThreadView

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZES = {"five": 5, "fifty": 50, "many": 200}
FILLED = """() => [...document.querySelectorAll('tbody')]
  .every((body) => body.children.length || body.closest('[hidden]'))"""

Act = Callable[["Page"], object]
TABS = ("batches", "plan", "errors", "logs", "state", "workers", "settings")


def _press(name: str) -> Act:
    return lambda page: page.get_by_role("button", name=name, exact=True).first.click()


def _read_state(page: Page) -> None:
    page.get_by_role("button", name="Read").click()
    page.get_by_text("2 keys").wait_for()


def _submit_wrong(page: Page) -> None:
    """Open the rest of the form, and submit a file with a long name."""
    page.locator("details").evaluate("(details) => { details.open = true; }")
    file: Any = {"name": f"{LONG}.py", "mimeType": "text/x-python", "buffer": b"import shops"}
    page.locator("input[type=file]").set_input_files([file])
    page.get_by_role("button", name="Submit", exact=True).click()
    page.get_by_role("alert").wait_for()


def _open_all(page: Page) -> None:
    """Open what is folded: the traceback of an error, and what happened."""
    page.locator("details.error").first.wait_for()
    for details in page.locator("details:visible").all():
        details.evaluate("(details) => { details.open = true; }")


def screens(name: str) -> Mapping[str, tuple[str, Act | None]]:
    """Return the path of each screen of a topology, and what is done there."""
    at = f"topology/{name}"
    return {
        "overview": (at, None),
        **{tab: (f"{at}/{tab}", None) for tab in TABS},
        "spout": (f"{at}/component/{'orders' if name == 'five' else 'orders-eu'}", None),
        "bolt": (f"{at}/component/{'enrich' if name == 'five' else 'parse-eu'}", None),
        "slow": (f"{at}/component/{'fraud-check' if name == 'five' else SLOW[name]}", None),
    }


LONG = "the_clicks_of_all_the_shops_in_europe_and_of_some_others_elsewhere"
SLOW = {"fifty": "", "many": ""}
COMMON: Mapping[str, tuple[str, Act | None]] = {
    "list": ("", None),
    "cluster": ("cluster", None),
    "failed": ("topology/nightly-report", None),
    "stalled": ("topology/sensors", None),
    "nothing": ("nothing/here", None),
    "desk": ("topology/desk", None),
    "calls": ("topology/desk/component/calls", None),
    "pattern": ("topology/desk/component/tried-out", None),
    "rules": ("topology/desk/component/alerts", None),
    "errors-open": ("topology/five/errors", _open_all),
    "state-read": ("topology/five/state", _read_state),
    "threads": ("topology/five/workers", _press("Threads")),
    "flame": ("topology/five/workers", _press("Flame graph")),
    "submit": ("submit", None),
    "submit-wrong": ("submit", _submit_wrong),
    "kill": ("topology/five", _press("Kill")),
    "rebalance": ("topology/five", _press("Rebalance")),
    "level": ("topology/five/logs", _press("Log level …")),
}


def furnish(world: World, monkeypatch: pytest.MonkeyPatch, sizes: Mapping[str, int]) -> None:
    """Add what the screens show, and answers to what is asked of processes."""
    for name, components in sizes.items():
        add_busy(world, name, components)
        driver = world.drivers[name]
        driver.decisions = [decision(at=time.time() - 90), decision(verdict="stay", to=1)]
        if name in SLOW:
            SLOW[name] = getattr(driver, "slow", "")
    add_desk(world)
    world.add("sensors", "STALLED", reason="spout 'mqtt' at its pending limit")
    world.add("clicks-of-all-the-shops-in-europe-and-elsewhere", "INACTIVE")
    world.add("booting", "STARTING", reason="starting Spark")
    world.add("yesterday", "COMPLETED")
    traceback = "Traceback (most recent call last):\n  File \"report.py\", line 9\nKeyError: 'cow'"
    world.add(
        "nightly-report",
        "FAILED",
        reason="KeyError: 'cow'",
        hint="topo errors nightly-report",
        traceback=traceback,
    )
    frames = ["<module> (app/main.py)", "execute (shop/enrich.py)", "price_of (shop/prices.py)"]
    stacks = StacksView(
        "five", 0, 4711, "faulthandler", 100,
        [ThreadView("MainThread", True, [f"{frame}:12" for frame in frames])],
        [StackView(frames, 61), StackView(frames[:2], 20),
         StackView([frames[0], "wait (threading.py)"], 19)],
    )  # fmt: skip
    entries: list[Mapping[str, Any]] = [
        {"index": 0, "key": "tea", "value": {"count": 12, "sum": 41.5}},
        {"index": 1, "key": "coffee", "value": {"count": 3, "sum": 11.0}},
    ]
    message = f"{LONG}.py raised ModuleNotFoundError: No module named 'shops'"
    wrong = {"code": "target", "message": message, "at": f"{LONG}.py:1"}

    def fail(*asked: Any) -> NoReturn:
        raise CommandFailed(1, wrong, "")

    monkeypatch.setattr("topo.manage.uploaded.answer_of", fail)
    monkeypatch.setattr("topo.manage.api.slot_processes", lambda run: {0: 4711, 1: 4712})
    monkeypatch.setattr("topo.manage.api.stacks_of", lambda run, slot, secs: stacks)
    monkeypatch.setattr("topo.manage.api.state_of", lambda *asked: StateView("five", "x", entries))


@contextmanager
def gallery(sizes: Mapping[str, int]) -> Iterator[Site]:
    """A server of a furnished registry."""
    with (
        tempfile.TemporaryDirectory() as home,
        pytest.MonkeyPatch.context() as monkeypatch,
        world_in(Path(home) / "home", monkeypatch) as world,
    ):
        furnish(world, monkeypatch, sizes)
        with serving(world, allow_submit=True) as site:
            yield site


def bring(page: Page, url: str, path: str, act: Act | None) -> None:
    """Show a screen, and wait until its figures are there."""
    page.goto(f"{url}/#/")  # a dialog is left with its page
    page.goto(f"{url}/#/{path}")
    page.locator("h1").first.wait_for(state="attached")
    page.locator(".panel, .empty").first.wait_for()
    page.wait_for_function(FILLED)
    if act is not None:
        act(page)


def write_pictures(chrome: Browser, site: Site, to: Path, wanted: tuple[str, ...]) -> None:
    """Write the pictures of all screens, or of those that are wanted."""
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            context = chrome.new_context(
                viewport={"width": width, "height": 844}, color_scheme=scheme
            )
            page = context.new_page()
            page.set_default_timeout(15_000)
            page.goto(site.server.link("operate"))
            for name, shown in {"": COMMON, **{size: screens(size) for size in SIZES}}.items():
                for screen, (path, act) in shown.items():
                    file = "-".join(filter(None, (screen, name, str(width), scheme)))
                    if wanted and screen not in wanted and f"{screen}-{name}" not in wanted:
                        continue
                    bring(page, site.url, path, act)
                    page.wait_for_timeout(
                        2600 if screen == "overview" else 900
                    )  # two samples make a rate
                    page.screenshot(path=to / f"{file}.png", full_page=act is None)
            context.close()


if __name__ == "__main__":
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    with gallery(SIZES) as shops, browser() as chromium:
        write_pictures(chromium, shops, directory, tuple(sys.argv[2:]))
