"""The pages in a browser: every screen, every state, every action.

Each page is watched: an error on its console, an exception in its code, or a request to anywhere
but its server fails the test.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.ui.browsers import browser
from tests.ui.conftest import Serve, Site, serving
from tests.ui.gallery import FILLED
from tests.ui.roles import add_desk
from tests.ui.worlds import HOSTILE, World, decision, error_of, fan, word_count
from topo.logs.requests import read_requests
from topo.manage.commands import CommandFailed
from topo.manage.marks import note_mark
from topo.manage.views import StacksView, StackView, StateView, ThreadView
from topo.metrics.observed import in_ranges

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.server
SHORT_MS = 15_000


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as made:
        yield made


class Watched:
    """A page, and all that it did which it should not do."""

    def __init__(self, page: Page, site: Site, allowed: tuple[str, ...]) -> None:
        self.page = page
        self.url = site.url
        self.complaints: list[str] = []
        self.allowed = allowed
        page.set_default_timeout(SHORT_MS)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        page.on("request", self._request)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning") and not any(
            words in message.text for words in self.allowed
        ):
            self.complaints.append(f"{message.type}: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((f"{self.url}/", "data:")):
            self.complaints.append(f"request elsewhere: {request.url}")

    def go(self, path: str) -> None:
        """Show another of the pages."""
        self.page.goto(f"{self.url}/#/{path}")

    def shows(self, text: str, where: str = "main") -> None:
        """Wait until the page shows a text."""
        self.page.locator(where).get_by_text(text).first.wait_for()


@contextmanager
def shown(
    chrome: Browser,
    site: Site,
    *,
    role: str | None = "operate",
    allowed: tuple[str, ...] = (),
    **context: Any,
) -> Iterator[Watched]:
    """A watched page of a site, logged in as a role, which must not have complained at its end."""
    opened = chrome.new_context(**context)
    watched = Watched(opened.new_page(), site, allowed)
    try:
        watched.page.goto(site.server.link(role) if role else site.url)
        yield watched
        assert watched.complaints == []
    finally:
        opened.close()


@pytest.mark.smoke
def test_the_list_of_topologies(chrome: Browser, world: World, site: Site) -> None:
    with shown(chrome, site) as watched:
        watched.shows("No topologies running")
        world.add("words")
        world.add("sensors", "STALLED", reason="spout 'mqtt' at its pending limit")
        world.add("clicks", "INACTIVE")
        world.add("booting", "STARTING", reason="starting Spark")
        world.add("nightly", "COMPLETED")
        world.add("broken", "FAILED", reason="KeyError: 'cow'")
        damaged = world.registry.directory_of("damaged-0000")
        damaged.mkdir()
        (damaged / "submission.json").write_text("[")
        for text in ("ACTIVE", "STALLED", "INACTIVE", "STARTING", "COMPLETED", "FAILED"):
            watched.shows(text)
        watched.shows("spout 'mqtt' at its pending limit")
        watched.shows("KeyError: 'cow'")
        watched.shows("damaged-0000 is not shown")
        row = watched.page.get_by_role("row", name="words")
        assert "1.88 k/s" in row.inner_text()
        watched.page.keyboard.press("/")
        watched.page.keyboard.type("senso")
        watched.page.get_by_role("row", name="words").wait_for(state="detached")
        watched.page.get_by_role("link", name="sensors").click()
        watched.shows("Stalled: no tuple is processed")


def test_the_cluster_page_has_hosts_slots_and_owners(
    chrome: Browser, world: World, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topo.manage.hosts.usable_cores", lambda: 3)
    run = world.add("words")
    far = world.add("far")
    submission = json.loads((far.directory / "submission.json").read_text())
    moved = submission | {"master": "spark://elsewhere:7077"}
    (far.directory / "submission.json").write_text(json.dumps(moved))
    world.drivers["far"].executors_now = [
        {"place": "m4:4040", "cores": 2, "tasks": 1, "lost_at": None, "why": "", "slots": [0, 1]},
        {"place": "m5:4041", "cores": 2, "tasks": 0, "lost_at": 60.0, "why": HOSTILE},
    ]
    with shown(chrome, site, role="view") as watched:
        watched.page.get_by_role("link", name="Cluster").click()
        for text in ("Executors of Spark clusters", "m4:4040", "alive", "m5:4041", HOSTILE):
            watched.shows(text)
        for text in ("this machine", "2 of 3", "cores without a slot", run.directory.owner()):
            watched.shows(text)
        watched.page.get_by_label("filter slots").fill("nobody")
        watched.shows("0 of 4 slots")
        watched.page.get_by_label("filter slots").fill("m4:4040")
        watched.shows("2 of 4 slots")
        watched.page.get_by_label("filter slots").fill("count")
        watched.page.get_by_role("link", name="words").first.click()
        watched.shows("Processes on this machine")
        watched.go("topology/far/workers")
        watched.page.get_by_role("row").filter(has_text="m4:4040").nth(1).wait_for()


def test_a_topology_is_drawn_with_its_figures(chrome: Browser, world: World, site: Site) -> None:
    world.add("words", conf={"topology.max.spout.pending": 7})
    driver = world.drivers["words"]
    with shown(chrome, site) as watched:
        watched.go("topology/words")
        watched.shows("fields(word)")
        graph = watched.page.locator(".graph")
        graph.locator("a.node.limit", has_text="words").wait_for()
        assert graph.locator("a.node").count() == 3
        figures = driver.figures["components"]["split"]
        for task in figures["by_task"].values():
            task |= {"executed": task["executed"] + 100_000, "execute_ms": 1.0}
        figures |= {"executed": 201_000, "emitted_by": {"default": 201_000}}
        busy = graph.locator("a.node.high", has_text="split")
        busy.wait_for()
        assert "task" in str(busy.text_content())
        assert busy.locator("rect.fill").get_attribute("width") == "152.0"
        graph.locator("g.edge:not(.idle)").wait_for()
        for title in ("Throughput", "Acked and failed", "Batch time", "Lag", "State"):
            watched.shows(title)
        assert watched.page.locator(".chart path.line").count() >= 8
        watched.page.locator(".chart svg").first.hover()
        watched.page.locator(".tip:visible").first.wait_for()
        watched.page.get_by_role("button", name="3 h").click()
        watched.page.get_by_role("table").get_by_role("link", name="count").click()
        watched.shows("Tasks")
        watched.shows("split", ".page")


def test_loops_calls_patterns_and_rules_are_drawn_as_what_they_are(
    chrome: Browser, world: World, site: Site
) -> None:
    add_desk(world)
    with shown(chrome, site) as watched:
        watched.go("topology/desk")
        graph = watched.page.locator(".graph")
        drawn = {
            "calls": ("DRPC", "3 open calls", "calls of a function"),
            "results": ("answers", "1,204 answers", "brings results to callers"),
            "tried-out": ("pattern", "412 partial matches", "looks for a pattern of events"),
            "alerts": ("rules", "1,000 firings", "asks rules"),
        }
        for name, (badge, figure, words) in drawn.items():
            node = graph.locator("a.node", has=watched.page.get_by_text(name, exact=True).first)
            node = node.filter(has=watched.page.locator(".role", has_text=badge))
            node.get_by_text(figure, exact=True).wait_for()
            assert words in (node.locator("title").text_content() or "")
        assert graph.locator("a.node .role").count() == len(drawn)
        assert graph.locator("a.node .frame").count() == 2
        graph.get_by_text("21 on the loop").first.wait_for()
        loop = graph.locator("g.edge.loop path")
        assert loop.get_attribute("marker-end") == "url(#back)"
        for words in ("calls of functions (DRPC)", "patterns and rules", "loop: goes back"):
            watched.shows(words, ".keys")
        graph.locator("a.node", has_text="alerts").click()
        watched.shows("Firings by rule")
        rules = watched.page.locator(".panel", has_text="Firings by rule")
        rules.get_by_role("cell", name="<b>odd</b>").wait_for()
        first = rules.locator("tbody tr").first.locator("td")
        assert [first.first.inner_text(), first.last.inner_text()] == ["large", "970"]
        watched.go("topology/desk/component/tried-out")
        watched.shows("Partial matches")
        watched.shows("412")
        watched.go("topology/desk/component/calls")
        watched.shows("Open calls")
        world.add("words")
        watched.go("topology/words")
        watched.shows("at its pending limit", ".keys")
        assert watched.page.locator(".keys").get_by_text("patterns and rules").count() == 0


def test_restarts_rebalances_and_errors_are_marks_in_the_charts(
    chrome: Browser, world: World, site: Site
) -> None:
    run = world.add("words")
    note_mark(run.directory, "restart", f"start 2, after: {HOSTILE}")
    note_mark(run.directory, "rebalance", "rebalance to 3 slots begins")
    world.drivers["words"].errors_found = [error_of("split", "no cow", time.time() - 60)]
    with shown(chrome, site) as watched:
        world.drivers["words"].ends_at = time.time() + 30  # the marks lie in the charts' time
        watched.go("topology/words")
        chart = watched.page.locator(".chart").first
        chart.locator(".mark.restart").wait_for(state="attached")
        assert chart.locator(".mark.error").count() == 1
        watched.shows("1 restart")
        watched.page.get_by_text("What happened").click()
        watched.shows(f"start 2, after: {HOSTILE}")
        watched.shows("split: ValueError: no cow")
        assert watched.page.evaluate("window.broken") is None


def test_what_a_slot_does_is_a_list_of_threads_and_a_flame_graph(
    chrome: Browser, world: World, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topo.manage.api.slot_processes", lambda run: {0: 4711})
    frames = ["<module> (app/main.py)", f"{HOSTILE} (bolts.py)"]
    view = StacksView(
        "words", 0, 4711, "faulthandler", 10,
        [ThreadView("0x7f01", True, ["<module> (app/main.py:3)", f"{HOSTILE} (bolts.py:12)"])],
        [StackView(frames, 8), StackView([frames[0], "wait (threading.py)"], 2)],
    )  # fmt: skip
    monkeypatch.setattr("topo.manage.api.stacks_of", lambda run, slot, secs: view)
    world.add("words")
    with shown(chrome, site) as watched:
        watched.go("topology/words/workers")
        watched.page.get_by_role("button", name="Threads").click()
        watched.shows("Slot 0: its threads")
        watched.shows(f"{HOSTILE} (bolts.py:12)")
        watched.page.get_by_role("button", name="Flame graph").click()
        watched.shows("10 samples by faulthandler")
        boxes = watched.page.locator(".flame span")
        assert [boxes.nth(at).inner_text() for at in range(3)] == ["<module>", HOSTILE, "wait"]
        assert "80" in str(boxes.nth(1).get_attribute("style"))
        assert watched.page.evaluate("window.broken") is None
    with shown(chrome, site, role="view") as watched:
        watched.go("topology/words/workers")
        watched.shows("4711")
        assert watched.page.get_by_role("button", name="Threads").count() == 0


def test_decisions_on_slots_are_shown(chrome: Browser, world: World, site: Site) -> None:
    world.add("words", conf={"topology.workers": {"min": 1, "max": 4}})
    world.add("fixed")
    world.drivers["words"].decisions = [decision(), decision(verdict="skew", to=1, reason=HOSTILE)]
    with shown(chrome, site) as watched:
        watched.go("topology/words/workers")
        watched.shows("between 1 and 4 slots")
        watched.shows("1 → 3")
        watched.shows(HOSTILE)
        assert watched.page.evaluate("window.broken") is None
        watched.go("topology/fixed/workers")
        watched.shows("Processes on this machine")
        assert not watched.page.get_by_role("heading", name="Scaling").is_visible()


def test_errors_are_ordered_and_batches_paged(chrome: Browser, world: World, site: Site) -> None:
    world.add("words")
    now = time.time()
    world.drivers["words"].errors_found = [
        error_of("split", "often", now - 300, first=now - 9000, count=31),
        error_of("count", "fresh", now - 5, first=now - 60),
    ]
    with shown(chrome, site) as watched:
        texts = watched.page.locator("details.error .text")
        watched.go("topology/words/errors")
        watched.shows("32 in all, 2 kinds")
        assert texts.all_inner_texts() == ["ValueError: fresh", "ValueError: often"]
        assert watched.page.locator(".chart path.line").get_attribute("d")
        watched.page.get_by_role("button", name="Most").click()
        assert texts.all_inner_texts() == ["ValueError: often", "ValueError: fresh"]
        watched.go("topology/words/batches")
        watched.shows("812 to 788")
        bars = watched.page.locator(".bars g:not(.pale)[data-id]")
        assert (bars.first.get_attribute("data-id"), bars.count()) == ("788", 25)
        watched.page.get_by_role("button", name="Older").click()
        watched.shows("787 to 763")
        assert bars.first.get_attribute("data-id") == "763"


def test_state_is_read_and_saved(
    chrome: Browser, world: World, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.add("words")

    def state_of(
        run: object, home: object, component: str, key: str, like: str, limit: int
    ) -> StateView:
        entries: list[Mapping[str, Any]] = [{"index": 0, "key": "cow", "value": 3}]
        more: list[Mapping[str, Any]] = [{"index": 1, "key": HOSTILE, "value": {"a": [1]}}]
        return StateView("words", component, entries if like else entries + more)

    monkeypatch.setattr("topo.manage.api.state_of", state_of)
    with shown(chrome, site) as watched:
        watched.go("topology/words/state")
        watched.shows("None lies beside the registry.")
        watched.page.get_by_role("button", name="Save now").click()
        watched.shows("saved batch 812", ".toasts")
        watched.shows(f"topo submit --from {world.registry.home}/savepoints/words/1 TARGET")
        watched.page.get_by_label("component").select_option("count")
        watched.page.get_by_role("button", name="Read").click()
        watched.shows("2 keys")
        watched.shows("cow")
        watched.shows(HOSTILE)
        watched.shows('{"a":[1]}')
        watched.page.get_by_label("keys like").fill("c?w")
        watched.page.get_by_role("button", name="Read").click()
        watched.shows("1 key")
        assert watched.page.evaluate("window.broken") is None
    with shown(chrome, site, role="view") as watched:
        watched.go("topology/words/state")
        watched.shows("Who operates may look into the state.")
        assert watched.page.get_by_role("button", name="Save now").count() == 0


def test_every_other_page_of_a_topology(chrome: Browser, world: World, site: Site) -> None:
    run = world.add("words", conf={"kafka.password": "hunter2"})
    world.log(run, "hello from the log", "second")
    with shown(chrome, site) as watched:
        for path, texts in {
            "topology/words/batches": [
                "The latest batches",
                "Waited for spouts",
                "work 480 ms",
            ],
            "topology/words/plan": ["3 levels, 2 slots, 2 exchanges", "Level 2", "provisional"],
            "topology/words/errors": ["No errors.", "Errors over time"],
            "topology/words/logs": ["hello from the log", "2 lines"],
            "topology/words/workers": ["driver", "count 1"],
            "topology/words/settings": ["kafka.password", "***", "topo submit"],
            "topology/words/component/split": ["Reads", "fields(word)", "Emits", "count ("],
            "topology/words/component/nobody": ["there is no such component"],
            "nothing/here": ["There is no such page"],
            "topology/words/nothing": ["There is no such page"],
        }.items():
            watched.go(path)
            for text in texts:
                watched.shows(text)
        watched.go("topology/words/settings")
        watched.shows("kafka.password")
        assert "hunter2" not in watched.page.content()
        watched.page.get_by_label("only what was set").check()
        watched.page.get_by_text("topology.acker.bind").wait_for(state="detached")


def test_logs_are_searched_and_followed(chrome: Browser, world: World, site: Site) -> None:
    run = world.add("words")
    world.log(run, "alpha", "beta")
    with shown(chrome, site) as watched:
        watched.go("topology/words/logs")
        watched.shows("beta")
        world.log(run, "gamma")
        watched.shows("gamma")
        watched.page.get_by_label("search").fill("^al")
        watched.page.get_by_text("gamma").wait_for(state="detached")
        watched.shows("alpha")
        watched.allowed = ("400",)
        watched.page.get_by_label("search").fill("(")
        watched.shows("grep is no regular expression")
        watched.page.get_by_label("search").fill("")
        watched.page.get_by_label("least level").select_option("ERROR")
        watched.page.get_by_text("alpha").wait_for(state="detached")


def test_states_say_what_is_the_matter(chrome: Browser, world: World, site: Site) -> None:
    trace = "Traceback (most recent call last):\n  words.py, line 3\nKeyError: 'cow'"
    world.add("broken", "FAILED", reason="it raised", hint="mend the code", traceback=trace)
    world.add("booting", "STARTING", reason="starting Spark")
    world.add("off", conf={"topology.acker.executors": 0})
    run = world.add("silent")
    world.end("silent")
    world.alive[run.directory] = 1
    with shown(chrome, site) as watched:
        watched.go("topology/broken")
        for text in ("it raised", "mend the code", "KeyError: 'cow'"):
            watched.shows(text)
        assert watched.page.get_by_role("button", name="Kill").count() == 0
        watched.go("topology/booting")
        watched.shows("starting Spark")
        watched.go("topology/off")
        watched.shows("Tracking is off")
        watched.go("topology/silent")
        watched.shows("Its driver does not answer")


def test_actions_ask_and_then_act(chrome: Browser, world: World, site: Site) -> None:
    world.add("words")
    driver = world.drivers["words"]
    with shown(chrome, site) as watched:
        page = watched.page
        watched.go("topology/words")
        page.get_by_role("button", name="Deactivate").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        assert driver.status_now == "ACTIVE"
        page.get_by_role("button", name="Deactivate").click()
        page.get_by_role("dialog").get_by_role("button", name="Deactivate").click()
        watched.shows("INACTIVE")
        page.get_by_role("button", name="Activate").click()
        watched.shows("ACTIVE")
        page.get_by_role("button", name="Rebalance").click()
        page.get_by_label("Slots").fill("3")
        page.get_by_role("dialog").get_by_role("button", name="Rebalance").click()
        watched.shows("REBALANCING")
        page.get_by_role("button", name="Kill").click()
        page.get_by_label("Seconds to wait").fill("3")
        page.keyboard.press("Enter")
        watched.shows("KILLED")
    assert (driver.killed_after, driver.workers_now) == (3.0, 3)
    audit = (world.registry.home / "ui-audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["status"] for line in audit] == [202, 202, 202, 202]


def test_a_question_is_gone_with_its_page(chrome: Browser, world: World, site: Site) -> None:
    world.add("words")
    with shown(chrome, site) as watched:
        watched.go("topology/words")
        watched.page.get_by_role("button", name="Kill").click()
        watched.page.locator("dialog").wait_for()
        watched.page.go_back()
        watched.shows("Topologies", "header")
        watched.page.locator("dialog").wait_for(state="detached")
        assert world.drivers["words"].killed_after is None


def test_an_ended_topology_without_figures_over_time_says_so_once(
    chrome: Browser, world: World, site: Site
) -> None:
    world.add("broken", "FAILED", reason="KeyError: 'cow'")
    with shown(chrome, site, viewport={"width": 390, "height": 844}) as watched:
        watched.go("topology/broken")
        watched.shows("No figures of this time are left")
        assert not watched.page.locator(".chart").first.is_visible()
        watched.go("topology/broken/settings")
        watched.shows("topology.acker.bind")
        tab = watched.page.locator(".tabs [aria-current]").bounding_box()
        assert tab is not None
        assert tab["x"] + tab["width"] <= 390  # the tab that is open is in sight


def test_samples_and_log_levels_are_asked_for(chrome: Browser, world: World, site: Site) -> None:
    run = world.add("words")
    with shown(chrome, site) as watched:
        watched.go("topology/words/component/split")
        watched.page.get_by_role("button", name="Sample for 30 s").click()
        watched.shows("Waiting for the next batch")
        (sample,) = read_requests(run.directory / "log").samples
        assert (sample.component, sample.per_sec) == ("split", 5.0)
        world.log(run, "sample of default: word='cow', count=3")
        watched.shows("word='cow', count=3")
        watched.go("topology/words/logs")
        watched.page.get_by_role("button", name="Log level").click()
        watched.page.get_by_label("Logger").fill("mine")
        watched.page.keyboard.press("Enter")
        watched.shows("mine: DEBUG for 10 min", ".toasts")
    assert read_requests(run.directory / "log").levels["mine"].level == "DEBUG"


def test_a_topology_is_submitted_by_a_form(
    chrome: Browser, world: World, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []

    def answer(command: list[str], home: Path, directory: Path, secs: float) -> Any:
        commands.append(command)
        assert (directory / "wordcount.py").read_bytes() == "ü".encode()
        if len(commands) == 1:
            wrong = {"code": "checkpoint", "message": HOSTILE, "hint": "--resume or --fresh"}
            raise CommandFailed(2, wrong, "")
        world.add("words", "STARTING", reason="starting Spark")
        return {"name": "words", "status": "STARTING"}

    monkeypatch.setattr("topo.manage.uploaded.answer_of", answer)
    file: Any = {"name": "wordcount.py", "mimeType": "text/x-python", "buffer": "ü".encode()}
    with shown(chrome, serve(allow_submit=True), allowed=("status of 409",)) as watched:
        watched.page.get_by_role("link", name="Submit …").click()
        submit = watched.page.get_by_role("button", name="Submit", exact=True)
        watched.page.locator("input[type=file]").set_input_files([file])
        for label, text in (("Name", "words"), ("Arguments", "--limit 7"), ("Slots", "2")):
            watched.page.get_by_label(label).first.fill(text)
        watched.page.get_by_label("Mode").select_option("real-time")
        settings = watched.page.get_by_label("Settings")
        settings.fill("topology.debug")
        submit.click()
        watched.shows("a setting is KEY=VALUE; got topology.debug")
        settings.fill(f"topology.debug=true\n\n__proto__=a=b\nmy.text={HOSTILE}")
        submit.click()
        watched.shows(HOSTILE)
        watched.shows("state: resume or fresh")
        watched.page.get_by_label("State that this name has left").select_option("fresh")
        watched.page.get_by_label("Start with its spouts running").uncheck()
        submit.click()
        watched.shows("starting Spark")
        assert watched.page.url.endswith("#/topology/words")
        assert watched.page.evaluate("window.broken") is None
    conf = {"topology.debug": True, "__proto__": "a=b", "my.text": HOSTILE}
    conf |= {"topology.workers": 2, "topology.mode": "real-time"}
    given = dict(pair.split("=", 1) for flag, pair in pairwise(commands[1]) if flag == "-c")
    assert {key: json.loads(value) for key, value in given.items()} == conf
    assert commands[1][-6:] == ["--inactive", "--fresh", "wordcount.py", "--", "--limit", "7"]


@pytest.mark.parametrize(
    ("options", "role", "words"),
    [
        ({}, "operate", "topo ui --allow-submit"),
        ({"read_only": True, "allow_submit": True}, "operate", "--read-only"),
        ({"allow_submit": True}, "view", "topo ui token"),
    ],
)
def test_without_a_form_the_page_says_what_allows_it(
    chrome: Browser, serve: Serve, options: dict[str, bool], role: str, words: str
) -> None:
    with shown(chrome, serve(**options), role=role) as watched:
        watched.go("submit")
        watched.shows("Topologies cannot be submitted here")
        watched.shows(words)
        assert watched.page.locator("form").count() == 0


def test_a_viewer_and_read_only_pages_have_no_buttons(
    chrome: Browser, world: World, serve: Serve
) -> None:
    world.add("words")
    for site, role in ((serve(), "view"), (serve(read_only=True), "operate")):
        with shown(chrome, site, role=role) as watched:
            watched.shows("ACTIVE")
            assert watched.page.get_by_role("button", name="Kill").count() == 0


def test_whoever_has_no_token_is_asked_for_it(chrome: Browser, world: World, site: Site) -> None:
    world.add("words")
    with shown(chrome, site, role=None, allowed=("401",)) as watched:
        watched.shows("Log in")
        watched.page.get_by_label("token").fill("wrong")
        watched.page.keyboard.press("Enter")
        watched.shows("unknown token")
        watched.page.get_by_label("token").fill(site.server.tokens.of("operate"))
        watched.page.keyboard.press("Enter")
        watched.shows("words")
        site.server.tokens.renew()
        watched.page.reload()
        watched.shows("Log in")


def test_who_logs_out_has_to_log_in_again(chrome: Browser, world: World, site: Site) -> None:
    world.add("words")
    with shown(chrome, site) as watched:
        watched.shows("ACTIVE")
        watched.page.get_by_role("button", name="Log out").click()
        watched.shows("Log in")
        watched.shows("not logged in", "header")
        watched.allowed = ("401",)
        watched.page.reload()
        watched.shows("Log in")


def test_what_a_component_counts_and_notes_is_shown_with_units(
    chrome: Browser, world: World, site: Site
) -> None:
    world.add("words")
    world.drivers["words"].figures["components"]["split"] |= {
        "counters": {"bad_records": 12},
        "gauges": {"behind_bytes": 2e6, "watermark_secs": 1_767_225_600.0},
        "histograms": in_ranges({'body_bytes{kind="a"}': [10.0] * 98 + [4000.0, 9e6]}),
    }
    with shown(chrome, site) as watched:
        watched.go("topology/words/component/split")
        spread = ('body_bytes{kind="a"}', "100", "90 kB", "≤ 10 B", "≤ 5 kB", "≤ 10 MB")
        for text in ("bad_records", "12", "2 MB", "2026-01-01 00:00:00", *spread):
            watched.shows(text)


def test_figures_of_a_component_are_drawn_since_its_page_was_opened(
    chrome: Browser, world: World, site: Site
) -> None:
    world.add("words")
    own = world.drivers["words"].figures["components"]["split"]
    own |= {"counters": {"hits": 100}, "gauges": {"queue_bytes": 2e6}, "executed": 1000}
    with shown(chrome, site) as watched:
        watched.go("topology/words/component/split")
        page = watched.page
        page.get_by_role("row", name="queue_bytes").locator("path").wait_for(state="attached")
        own |= {"counters": {"hits": 9000}, "gauges": {"queue_bytes": 5e6}, "executed": 90_000}
        level = page.get_by_role("img", name="between 2 MB and 5 MB since the page was opened")
        level.wait_for()
        assert level.locator("path").get_attribute("d")
        page.get_by_role("img", name=re.compile(r"between 0.s and [\d.]+ k.s since")).wait_for()
        chart = page.locator(".chart", has=page.get_by_role("img", name="Throughput since"))
        chart.locator("path.line").nth(1).wait_for(state="attached")
        assert page.get_by_role("img", name="Busiest task since").is_visible()
        watched.go("topology/words/component/words")
        watched.shows("Emitted tuples")
        page.get_by_role("img", name="Busiest task since").wait_for(state="hidden")


def test_a_server_that_comes_back_is_found(chrome: Browser, world: World) -> None:
    world.add("words")
    with serving(world) as first, shown(chrome, first) as watched:
        watched.allowed = ("ERR_CONNECTION", "net::", "ERR_INCOMPLETE")
        watched.shows("ACTIVE")
        bind = first.url.removeprefix("http://")
        first.server.stop()
        watched.shows("no connection", "header")
        world.add("second")
        with serving(world, bind=bind):
            watched.shows("second")
            watched.shows("live", "header")


def test_whatever_is_shown_is_text(chrome: Browser, world: World, site: Site) -> None:
    run = world.add("words", topology=word_count(spout=HOSTILE), conf={"mine": HOSTILE, HOSTILE: 1})
    driver = world.drivers["words"]
    driver.errors_found = [
        {"component": HOSTILE, "task": 1, "host": HOSTILE, "kind": "reported", "type": HOSTILE,
         "message": HOSTILE, "at": HOSTILE, "traceback": HOSTILE, "count": 1,
         "first": time.time(), "last": time.time()},
    ]  # fmt: skip
    (run.directory / "errors.json").write_text(json.dumps(driver.errors_found))
    driver.figures["components"][HOSTILE]["failed_by"] = {HOSTILE: 3}
    driver.figures["components"][HOSTILE]["gauges"] = {HOSTILE: 3}
    driver.figures["components"][HOSTILE]["emitted_by"] = {HOSTILE: 3}
    driver.figures["components"]["count"]["counters"] = {f'firings{{rule="{HOSTILE}"}}': 3}
    world.log(run, HOSTILE)
    world.add("broken", "FAILED", reason=HOSTILE, hint=HOSTILE, traceback=HOSTILE)
    state = json.loads((run.directory / "state.json").read_text())
    state |= {"reason": HOSTILE, "ui": "javascript:window.broken=1"}
    (run.directory / "state.json").write_text(json.dumps(state))
    pages = ["", "topology/broken", "topology/words", "topology/words/component/split"]
    pages += ["topology/words/component/count"]
    pages += [f"topology/words/{tab}" for tab in ("batches", "plan", "errors", "workers")]
    pages += ["topology/words/logs", "topology/words/settings", f"topology/{HOSTILE}"]
    pages += [f"topology/words/component/{HOSTILE.replace('/', '%2F')}"]
    with shown(chrome, site) as watched:
        watched.allowed = ("404",)
        for path in pages:
            watched.go(path)
            watched.page.get_by_text("<img src=x", exact=False).first.wait_for(state="attached")
            state_of = "[window.broken, document.querySelector('main img, iframe, [onerror]')]"
            assert watched.page.evaluate(state_of) == [None, None], path
            links = watched.page.evaluate("[...document.links].map((link) => link.href)")
            assert not [href for href in links if href.startswith("javascript")]


def test_two_hundred_components_are_drawn_at_once(
    chrome: Browser, world: World, site: Site, record_property: Any
) -> None:
    world.add("wide", topology=word_count(bolts=199))
    with shown(chrome, site) as watched:
        watched.go("topology/wide")
        watched.page.locator("a.node").nth(199).wait_for(state="attached")
        watched.page.locator("tbody tr").nth(199).wait_for(state="attached")
        assert watched.page.locator("a.node").count() == 200
        record_property("draw_ms", watched.page.evaluate(DRAW_200))


DRAW_200 = """async () => {
  const { Graph } = await import('/static/graph.js');
  const { Rates } = await import('/static/rates.js');
  const view = await (await fetch('/api/topologies/wide')).json();
  const plan = await (await fetch('/api/topologies/wide/plan')).json();
  const rates = new Rates();
  rates.add(view, 0);
  rates.add(view, 2000);
  const times = [];
  for (let round = 0; round < 3; round += 1) {
    const began = performance.now();
    const graph = new Graph(plan, 'wide');
    graph.update(view, rates, new Set());
    document.querySelector('main').replaceChildren(graph.element);
    graph.svg.getBoundingClientRect();
    times.push(performance.now() - began);
  }
  return Math.min(...times);
}"""


def test_a_level_of_many_components_is_folded(chrome: Browser, world: World, site: Site) -> None:
    world.add("fan", topology=fan(40))
    world.drivers["fan"].errors_found = [
        {"component": "parse-039", "task": 1, "host": "h", "kind": "reported", "type": "E",
         "message": "m", "at": "", "traceback": "", "count": 1, "first": time.time(),
         "last": time.time()},
    ]  # fmt: skip
    with shown(chrome, site) as watched:
        page = watched.page
        watched.go("topology/fan")
        group = page.locator(".node.group")
        group.get_by_text("33 more").wait_for()
        group.get_by_text("errors in 1").wait_for()
        assert page.locator("a.node").count() == 9
        page.locator(".edge", has_text="33 streams").first.wait_for()
        group.focus()
        page.keyboard.press("Enter")
        page.locator("a.node").nth(41).wait_for()
        # 80 edges: their labels are shown of what is pointed at.
        assert page.locator(".edge text:visible").count() == 0
        page.locator("a.node", has_text="parse-001").hover()
        page.locator(".edge.near text", has_text="shuffle").first.wait_for()
        page.locator(".fold").click()
        group.get_by_text("33 more").wait_for()
        page.keyboard.press("/")
        page.keyboard.type("PARSE-039")
        page.locator("a.node.wanted", has_text="parse-039").wait_for()
        assert page.locator("a.node.wanted").count() == 1
        watched.shows("1 of 42")
        page.get_by_role("table").get_by_role("link", name="parse-001").wait_for(state="detached")


SIGHT = """(svg) => {
  const { a, e, f } = new DOMMatrix(getComputedStyle(svg).transform);
  return [-e / a, -f / a, svg.parentElement.clientWidth / a];
}"""


def test_the_graph_is_moved_zoomed_and_fitted(chrome: Browser, world: World, site: Site) -> None:
    world.add("wide", topology=word_count(bolts=60))
    with shown(chrome, site) as watched:
        page = watched.page
        watched.go("topology/wide")
        page.locator("a.node").nth(60).wait_for(state="attached")
        svg = page.locator(".graph svg")

        def sight() -> list[float]:
            """Return the left, top and width of what is in sight of the picture."""
            return [float(part) for part in svg.evaluate(SIGHT)]

        x, _, wide = sight()
        assert x == 0  # the spout is in sight
        page.get_by_role("button", name="Show all of it").click()
        assert sight()[2] > 10 * wide
        names = page.locator("a.node .far-name")
        assert names.first.is_visible()  # of small boxes only the names are drawn, and larger
        assert not page.locator("a.node .name").first.is_visible()
        page.get_by_role("button", name="Larger").click()
        assert sight()[2] < sight()[2] * 1.25
        page.locator(".graph").focus()
        page.keyboard.press("0")
        for _ in range(12):
            page.keyboard.press("+")
        before = sight()[0]
        page.keyboard.press("ArrowRight")
        assert sight()[0] > before
        box = page.locator("a.node:visible").nth(30).bounding_box()
        assert box is not None
        before = sight()[0]
        page.mouse.move(box["x"] + 20, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] - 100, box["y"] + 20, steps=4)
        page.mouse.up()
        assert sight()[0] > before
        assert page.url.endswith("topology/wide")  # a drag is no click
        page.locator("a.node").last.focus()  # the keyboard brings what it reaches into sight
        end = sight()
        assert end[0] + end[2] > 60 * 308


CHANGED = """() => {
  window.changed = [];
  new MutationObserver((records) => {
    for (const { target } of records) {
      const element = target.nodeType === Node.ELEMENT_NODE ? target : target.parentElement;
      if (!element || element.closest('.charts')) continue;  // drawn anew with each history
      const node = element.closest('a.node');
      const place = `${element.tagName} ${element.getAttribute('class')}`;
      window.changed.push(node ? node.querySelector('title').textContent.split('\\n')[0] : place);
    }
  }).observe(document.querySelector('main'), {
    subtree: true, childList: true, characterData: true, attributes: true,
  });
}"""


def test_a_frame_has_little_to_do(chrome: Browser, world: World, site: Site) -> None:
    """What keeps frames of large topologies short, without a clock.

    A refresh touches the boxes with other figures, and a drag nothing but a transform. With 200
    components the longest task of a refresh takes 10 ms, where it took 30.
    """
    world.add("wide", topology=word_count(bolts=60))
    figures = world.drivers["wide"].figures["components"]
    with shown(chrome, site) as watched:
        page = watched.page
        watched.go("topology/wide")
        last = page.locator("a.node", has_text="bolt-059")
        last.get_by_text("0/s").wait_for(state="attached")  # nothing moves, and all is drawn
        page.evaluate(CHANGED)
        for name in ("bolt-003", "bolt-058"):
            figures[name] |= {"held": 77}
            node = page.locator("a.node", has_text=name)
            node.get_by_text("77 held").wait_for(state="attached")
        changed = page.evaluate("window.changed.splice(0)")
        changed = [each for each in changed if each != "DIV note"]  # how long it has been up
        assert set(changed) == {"bolt-003", "bolt-058"}
        assert 1 <= len(changed) <= 6
        box = page.locator(".graph").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 600, box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + 100, box["y"] + 20, steps=20)
        page.mouse.up()
        page.locator("svg.moving").wait_for(state="detached")
        moved = page.evaluate("window.changed.splice(0)")
        assert {each.split()[0] for each in moved} == {"svg", "DIV"}
        assert all("graph" in each for each in moved if each.startswith("DIV"))
        assert 20 <= len(moved) <= 30


def test_what_is_out_of_sight_is_drawn_when_it_comes_into_sight(
    chrome: Browser, world: World, site: Site
) -> None:
    world.add("wide", topology=word_count(bolts=60))
    figures = world.drivers["wide"].figures["components"]
    with shown(chrome, site) as watched:
        page = watched.page
        watched.go("topology/wide")
        row = page.get_by_role("row").filter(has=page.get_by_role("link", name="bolt-000"))
        row.get_by_text("1,000").first.wait_for(state="attached")
        page.locator("a.node", has_text="bolt-059").get_by_text("0/s").wait_for(state="attached")
        figures["bolt-000"] |= {"acked": 31_337, "held": 5}
        page.locator("a.node", has_text="5 held").wait_for(state="attached")
        assert "31,337" not in (row.text_content() or "")
        row.scroll_into_view_if_needed()
        row.get_by_text("31,337").wait_for()
        figures["bolt-000"] |= {"held": 6}
        page.evaluate("scrollTo(0, 0)")
        page.locator("a.node", has_text="6 held").wait_for(state="attached")


def test_what_holds_a_topology_back_is_said(chrome: Browser, world: World, site: Site) -> None:
    world.add("words", conf={"topology.max.spout.pending": 7})
    figures = world.drivers["words"].figures["components"]
    held = r"""watermark_held_secs{by="'words' task 3, its 'a\\b'"}"""
    figures["count"] |= {"gauges": {"watermark_secs": 1_767_225_600.0, held: 9.0}}
    figures["count"] |= {"counters": {'bad_records{topic="x"}': 12, "mine": 5}, "late": 3}
    with shown(chrome, site) as watched:
        watched.go("topology/words")
        watched.shows("Not everything is in the results")
        watched.shows("count: 12 unreadable, 3 too late")
        chip = watched.page.locator("a.node", has_text="count").locator(".watermark")
        chip.get_by_text("held back by 'words'").wait_for()
        title = watched.page.locator("a.node title", has_text="its 'a\\b'").text_content()
        assert "watermark 2026-01-01 00:00:00" in str(title)
        for task in figures["split"]["by_task"].values():
            task |= {"executed": task["executed"] + 100_000, "execute_ms": 1.0}
        figures["split"] |= {"executed": 201_000}
        watched.page.locator("a.node.limit text", has_text="waits for split").wait_for()


def test_batches_are_turned_page_by_page(chrome: Browser, world: World, site: Site) -> None:
    world.add("words")
    with shown(chrome, site) as watched:
        watched.go("topology/words/batches")
        older = watched.page.get_by_role("button", name="Older")
        newer = watched.page.get_by_role("button", name="Newer")
        cells = watched.page.locator("tbody td:first-child")
        watched.shows("812 to 788")
        assert newer.is_disabled()
        assert cells.all_inner_texts() == [str(number) for number in range(812, 787, -1)]
        pages = [(latest, latest - 24) for latest in range(812, 512, -25)]
        for latest, last in pages[1:]:
            older.click()
            watched.shows(f"{latest} to {last}")
            assert cells.last.inner_text() == str(last)
        assert older.is_disabled()
        for latest, last in pages[-2::-1]:
            newer.click()
            watched.shows(f"{latest} to {last}")
        assert newer.is_disabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_narrow_screen_scrolls_only_tables_and_graphs(
    chrome: Browser, world: World, site: Site, scheme: Any
) -> None:
    run = world.add("words-with-a-rather-long-name", "ACTIVE")
    world.log(run, "x" * 400)
    narrow = {"width": 360, "height": 740}
    name = "topology/words-with-a-rather-long-name"
    with shown(chrome, site, viewport=narrow, color_scheme=scheme) as watched:
        for path in ("", name, f"{name}/logs", f"{name}/batches", f"{name}/settings"):
            watched.go(path)
            watched.page.locator("main .panel").first.wait_for()
            watched.page.locator("header .live.live").wait_for()
            width = watched.page.evaluate("document.documentElement.scrollWidth")
            assert width <= 360, path


def test_the_keyboard_reaches_everything(chrome: Browser, world: World, site: Site) -> None:
    world.add("words")
    with shown(chrome, site) as watched:
        watched.shows("ACTIVE")
        page = watched.page
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
        names = []
        for _ in range(25):
            page.keyboard.press("Tab")
            names.append(page.evaluate("document.activeElement.textContent"))
        assert {"words", "Deactivate", "Kill"} <= set(names)
        watched.go("topology/words")
        page.locator("a.node").first.wait_for()
        page.locator("a.node").first.focus()
        page.keyboard.press("Enter")
        watched.shows("Tasks")


SCREENS = (
    "", "cluster", "topology/words", "topology/words/component/split", "topology/words/batches",
    "topology/words/plan", "topology/words/errors", "topology/words/logs", "topology/words/state",
    "topology/words/workers", "topology/words/settings", "topology/fan", "nothing/here",
)  # fmt: skip
BARRIERS = """() => {
  const shown = (element) => element.getClientRects().length > 0;
  const all = (selector) => [...document.querySelectorAll(selector)].filter(shown);
  const say = (what, elements) => elements.map((one) => `${what}: ${one.outerHTML.slice(0, 99)}`);
  const named = (element) => element.getAttribute('aria-label') || element.textContent.trim()
    || element.getAttribute('title') || element.labels?.length;
  const label = (element) => element.getAttribute('aria-label');
  const words = (text) => text.toLowerCase().replace(/\\s+/g, ' ').trim();
  const ids = all('[id]').map((element) => element.id);
  const inside = 'a[href], button, input, select, summary, [tabindex]';
  const wide = all('*').filter((element) => element.scrollWidth > element.clientWidth + 1
    && ['auto', 'scroll'].includes(getComputedStyle(element).overflowX));
  return [
    ...say('no name', all('a[href], button, input, select, [role=button], [role=img], svg[role]')
      .filter((element) => !named(element))),
    ...say('its name is another than its text', all('button[aria-label], [role=button][aria-label]')
      .filter((element) => /[a-z]/i.test(element.textContent)
        && !words(label(element)).includes(words(element.textContent)))),
    ...say('empty header of a column', all('th').filter((head) => !head.textContent.trim())),
    ...say('not scrolled by the keyboard', wide.filter((element) => element.tabIndex < 0
      && ![...element.querySelectorAll(inside)].some((one) => one.tabIndex >= 0))),
    ...(document.querySelector('h1') ? [] : ['no heading']),
    ...ids.filter((id, at) => ids.indexOf(id) !== at).map((id) => `id twice: ${id}`),
    ...(document.documentElement.scrollWidth > innerWidth ? ['wider than the screen'] : []),
  ];
}"""


def barriers(page: Page) -> list[str]:
    """Return the barriers that stay: figures come one by one, and are shown a frame later."""
    waiting = """async () => {
      const [barriers, end] = [%s, performance.now() + 5000];
      while (barriers().length && performance.now() < end) await new Promise(requestAnimationFrame);
      return barriers();
    }"""
    return list(page.evaluate(waiting % BARRIERS))


def test_a_table_that_grows_under_its_reader_is_scrolled_by_the_keyboard(
    chrome: Browser, world: World, site: Site
) -> None:
    world.add("words")
    with shown(chrome, site, viewport={"width": 700, "height": 844}) as watched:
        watched.go("topology/words/workers")
        table = watched.page.locator(".scroll:has(tbody tr)").first
        table.wait_for()
        assert table.get_attribute("tabindex") is None
        # Only wider, as by a longer name of a host: its place stays as large as it is.
        table.locator("table").evaluate("(table) => { table.style.width = '2000px'; }")
        watched.page.locator(".scroll[tabindex='0']").first.wait_for()
        table.locator("table").evaluate("(table) => { table.style.width = ''; }")
        watched.page.locator(".scroll:has(tbody tr):not([tabindex])").first.wait_for()


@pytest.mark.parametrize("width", [1280, 390])
def test_no_screen_has_barriers(chrome: Browser, world: World, site: Site, width: int) -> None:
    world.add("words")
    world.add("fan", topology=fan(40))
    world.drivers["words"].errors_found = [error_of("split", "no cow", time.time())]
    with shown(chrome, site, viewport={"width": width, "height": 844}) as watched:
        watched.shows("ACTIVE")
        for path in SCREENS:
            watched.go(path)
            watched.page.locator("h1").first.wait_for(state="attached")
            watched.page.locator(".panel, .empty").first.wait_for()
            watched.page.wait_for_function(FILLED)
            assert barriers(watched.page) == [], path
        watched.page.evaluate("document.querySelector('main').innerHTML = '<button></button>'")
        assert any("no name" in each for each in barriers(watched.page))
