"""The control service of a driver: what goes wrong in it is told as what it is."""

from __future__ import annotations

import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.test_control_registry import make
from tests.unit.test_control_windows import figures
from topo import RunError
from topo.config.masters import split_address
from topo.manage.answers import row_of
from topo.manage.client import ControlClient, DriverFault, DriverUnreachable
from topo.manage.control import PREFIX, DriverStatus, bearer_for
from topo.manage.exposing import pages_of
from topo.manage.records import RunRecord, State
from topo.manage.registry import Registry, draw_token
from topo.manage.service import DriverServer
from topo.metrics.history import Windows
from topo.metrics.prometheus import Exposed
from topo.serving.listening import BindError


class Answers:
    """A driver whose `stats` are what a test says."""

    def __init__(self, stats: Callable[[], Any]) -> None:
        self._stats = stats

    def status(self) -> DriverStatus:
        return DriverStatus(status="ACTIVE")

    def stats(self, window_secs: float | None) -> dict[str, Any]:
        found: dict[str, Any] = self._stats()
        return found

    nothing: Any = None
    errors = history = batches = activate = deactivate = begin_rebalance = nothing
    save = scale = nothing

    def begin_kill(self, wait_secs: float) -> str:
        raise NotImplementedError


@contextmanager
def served(
    tmp_path: Path, stats: Callable[[], Any], answers: Answers | None = None
) -> Iterator[RunRecord]:
    run = make(Registry(tmp_path))
    driver: Any = answers or Answers(stats)
    server = DriverServer(driver, (run.directory / "token").read_text())
    try:
        yield replace(run, state=State("ACTIVE", address=server.address))
    finally:
        server.stop()


def broken() -> Any:
    raise KeyError("a mistake of topo's \udc80")


def refused() -> Any:
    raise RunError("words is STARTING \udc80")


@pytest.mark.parametrize(
    ("stats", "kind", "said"),
    [
        (broken, DriverFault, r"words' driver cannot answer: KeyError: .*a mistake of topo's"),
        (refused, RunError, r"words is STARTING \\udc80"),
    ],
)
def test_what_fails_in_a_driver_is_no_silence(
    tmp_path: Path, stats: Callable[[], Any], kind: type[Exception], said: str
) -> None:
    with served(tmp_path, stats) as run, ControlClient(run) as client:
        with pytest.raises(kind, match=said):
            client.stats()
        assert client.status().status == "ACTIVE"


def test_figures_of_many_tasks_are_no_message_too_large(tmp_path: Path) -> None:
    with served(tmp_path, lambda: {"x": "y" * 5_000_000}) as run, ControlClient(run) as client:
        assert len(client.stats()["x"]) == 5_000_000


def call(run: RunRecord, method: str = "GET", path: str = "/status", **more: Any) -> httpx.Response:
    """Send a request to a driver as anybody may."""
    bearer = bearer_for((run.directory / "token").read_text(), run.state.address)
    headers = {"Authorization": f"Bearer {bearer}", **more.pop("headers", {})}
    url = f"http://{run.state.address}{PREFIX}{path}"
    return httpx.request(method, url, headers=headers, timeout=60, verify=False, **more)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": "Bearer guess"}, 401),
        ({"Authorization": "Bearer gu\u00e9ss".encode("latin-1")}, 401),
        ({"Authorization": "Basic {token}"}, 401),
        ({"Host": "evil.example"}, 421),
        ({"Host": "[::1"}, 421),
    ],
)
def test_who_is_heard(tmp_path: Path, headers: dict[str, Any], status: int) -> None:
    with served(tmp_path, dict) as run:
        assert call(run, headers=headers).status_code == status
        if status == 401:
            for path in ("/kill", "/no-such"):
                assert call(run, "POST", path, headers=headers).status_code == 401


def test_what_was_sent_to_somebody_elses_port_opens_no_driver(tmp_path: Path) -> None:
    """The driver was killed, and its port is another program's before its run has another one."""
    with served(tmp_path, dict) as run, ControlClient(run) as client:
        assert client.status().status == "ACTIVE"
    heads: list[str] = []
    with socket.create_server(split_address(run.state.address)) as thief:
        for is_next in (False, True):
            if is_next:
                draw_token(run.directory)
            with ThreadPoolExecutor(1) as threads, ControlClient(run) as client:
                asked = threads.submit(client.status)
                connection, _ = thief.accept()
                with connection:
                    heads.append(connection.recv(65536).decode())
                with pytest.raises(DriverUnreachable):
                    asked.result()
        stolen = [re.findall("Authorization: (.+)\\r", head)[0] for head in heads]
        token = (run.directory / "token").read_text()
        driver: Any = Answers(dict)
        server = DriverServer(driver, token)
        try:
            now = replace(run, state=State("ACTIVE", address=server.address))
            for shown in (*stolen, f"Bearer {token}"):
                assert call(now, headers={"Authorization": shown}).status_code == 401
            assert call(now).status_code == 200
        finally:
            server.stop()


def test_a_driver_from_before_an_upgrade_is_shown_its_token(tmp_path: Path) -> None:
    """It asks for what is in the file, and draws none; so it can be ended by newer commands."""
    draw = "0f" * 32
    heads: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as former:
        run = make(Registry(tmp_path))
        (run.directory / "token").write_text(draw)
        state = State("ACTIVE", address="{}:{}".format(*former.getsockname()))
        with ThreadPoolExecutor(1) as threads, ControlClient(replace(run, state=state)) as client:
            asked = threads.submit(client.status)
            connection, _ = former.accept()
            with connection:
                heads.append(connection.recv(65536).decode())
                connection.sendall(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}")
            with pytest.raises(DriverUnreachable, match="refuses the token") as raised:
                asked.result()
    assert f"Authorization: Bearer {draw}\r\n" in heads[0]
    assert "topo kill --force words" in raised.value.hint


def test_a_token_that_lost_its_content_lets_nobody_in() -> None:
    driver: Any = Answers(dict)
    server = DriverServer(driver, "")
    try:
        for headers in ({}, {"Authorization": "Bearer"}):
            asked = httpx.get(f"http://{server.address}{PREFIX}/status", headers=headers)
            assert asked.status_code == 401
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("method", "path", "more", "status"),
    [
        ("GET", "/no-such", {}, 404),
        ("GET", "/status/", {}, 404),
        ("GET", "/kill", {}, 405),
        ("GET", "/stats?window_secs=soon", {}, 400),
        ("GET", "/stats?window_secs=-1", {}, 400),
        ("GET", "/stats?window_secs=1&window_secs=2", {}, 400),
        ("GET", "/stats?no_such=1", {}, 400),
        ("POST", "/kill", {"content": b"{"}, 400),
        ("POST", "/kill", {"content": b"[" * 10_000}, 400),
        ("POST", "/kill", {"json": {"wait_secs": "long"}}, 400),
        ("POST", "/kill", {"json": {"no_such": 1}}, 400),
        ("POST", "/savepoint", {"json": {}}, 400),
        ("POST", "/rebalance", {"json": {"tasks": {"split": 0}}}, 400),
        ("POST", "/kill", {"content": b" " * 70_000}, 413),
    ],
)
def test_a_request_that_cannot_be_is_refused_before_the_driver_hears_of_it(
    tmp_path: Path, method: str, path: str, more: dict[str, Any], status: int
) -> None:
    with served(tmp_path, dict) as run:  # whose changes would be mistakes of its own, a 500
        answer = call(run, method, path, **more)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
        assert call(run).json()["status"] == "ACTIVE"


def test_strangers_that_say_nothing_hold_up_nobody(tmp_path: Path) -> None:
    head = f"POST {PREFIX}/kill HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 5\r\n\r\n".encode()
    with served(tmp_path, dict) as run, ExitStack() as stack:
        before = threading.active_count()
        for number, said in enumerate([head, b"", head[:20]] * 40):
            one = socket.create_connection(split_address(run.state.address), timeout=60)
            stack.enter_context(one)
            one.sendall(said)
            if number == 0:
                assert one.recv(4096).startswith(b"HTTP/1.1 401")  # before its body is there
        with ControlClient(run) as client:
            assert client.status().status == "ACTIVE"
        assert threading.active_count() <= before + 2


def test_one_change_is_made_at_a_time(tmp_path: Path) -> None:
    class Changing(Answers):
        def __init__(self) -> None:
            super().__init__(dict)
            self.in_work, self.most = 0, 0

        def activate(self) -> str:
            self.in_work += 1
            self.most = max(self.most, self.in_work)
            time.sleep(0.001)
            self.in_work -= 1
            return "INACTIVE"

        deactivate = activate

    driver = Changing()
    with (
        served(tmp_path, dict, driver) as run,
        ControlClient(run) as client,
        ThreadPoolExecutor(4) as threads,
    ):
        changes = [client.activate, client.deactivate] * 4
        answers = list(threads.map(lambda change: change(), changes))
    assert {(answer.was, answer.status) for answer in answers} == {("INACTIVE", "ACTIVE")}
    assert driver.most == 1


def test_what_was_given_up_while_the_driver_stood_still_is_not_done_later(
    tmp_path: Path,
) -> None:
    calls = []

    class Counting(Answers):
        def activate(self) -> str:
            calls.append(threading.current_thread().name)
            return "INACTIVE"

    run = make(Registry(tmp_path))
    driver: Any = Counting(dict)
    server = DriverServer(driver, (run.directory / "token").read_text())
    may_continue = threading.Event()
    try:
        run = replace(run, state=State("ACTIVE", address=server.address))
        with ControlClient(run) as client:
            assert client.status().status == "ACTIVE"
        loop: Any = server._thread._server._loop
        loop.call_soon_threadsafe(may_continue.wait)
        with ControlClient(run, timeout_secs=0.1) as hasty:
            for _ in range(3):
                with pytest.raises(DriverUnreachable):
                    hasty.activate()
        may_continue.set()
        with ControlClient(run) as client:
            assert client.activate().was == "INACTIVE"
    finally:
        may_continue.set()
        server.stop()
    assert len(calls) == 1


def test_what_was_given_up_while_another_change_was_made_is_not_done_later(
    tmp_path: Path,
) -> None:
    class Changing(Answers):
        def __init__(self) -> None:
            super().__init__(dict)
            self.is_begun, self.may_end = threading.Event(), threading.Event()
            self.changes: list[str] = []

        def activate(self) -> str:
            self.is_begun.set()
            assert self.may_end.wait(60)
            self.changes.append("activate")
            return "INACTIVE"

        def deactivate(self) -> str:
            self.changes.append("deactivate")
            return "ACTIVE"

        def save(self, directory: str) -> dict[str, Any]:
            return {"directory": directory}

    driver = Changing()
    with (
        served(tmp_path, dict, driver) as run,
        ControlClient(run) as client,
        ThreadPoolExecutor(1) as threads,
    ):
        first = threads.submit(client.activate)
        assert driver.is_begun.wait(60)
        with ControlClient(run, timeout_secs=0.1) as hasty:
            for _ in range(3):
                with pytest.raises(DriverUnreachable) as raised:
                    hasty.deactivate()
        assert "has not begun, it will not do later" in raised.value.hint
        assert client.savepoint("there") == {"directory": "there"}, "that waits for no change"
        driver.may_end.set()
        assert first.result().was == "INACTIVE"
        assert client.deactivate().was == "ACTIVE"
    assert driver.changes == ["activate", "deactivate"]


def test_pages_have_a_door_of_their_own(tmp_path: Path) -> None:
    pages = {"/metrics": lambda accept, query: (b"x 1\n", "text/plain")}
    driver: Any = Answers(dict)
    server = DriverServer(driver, "t" * 40, pages, "127.0.0.1:0")
    try:
        control, open_one = f"http://{server.address}", f"http://{server.pages_address}"
        token = {"Authorization": f"Bearer {bearer_for('t' * 40, server.address)}"}
        assert httpx.get(f"{open_one}/metrics").text == "x 1\n"
        assert httpx.get(f"{open_one}{PREFIX}/status", headers=token).status_code == 404
        assert httpx.get(f"{control}/metrics").status_code == 401
        assert httpx.get(f"{control}/metrics", headers=token).status_code == 404
        assert httpx.get(f"{control}{PREFIX}/status", headers=token).status_code == 200
    finally:
        server.stop()


def test_whoever_asks_for_many_pages_holds_up_no_command() -> None:
    may_answer = threading.Event()

    def page(accept: str, query: object) -> tuple[bytes, str]:
        may_answer.wait()
        return b"x 1\n", "text/plain"

    driver: Any = Answers(dict)
    server = DriverServer(driver, "t" * 40, {"/metrics": page}, "127.0.0.1:0")
    with ExitStack() as stack:
        stack.callback(server.stop)
        stack.callback(may_answer.set)
        for _ in range(60):  # more than there are threads
            one = socket.create_connection(split_address(server.pages_address), timeout=60)
            stack.enter_context(one)
            one.sendall(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        asked = httpx.get(
            f"http://{server.address}{PREFIX}/status",
            headers={"Authorization": f"Bearer {bearer_for('t' * 40, server.address)}"},
            timeout=20,
        )
        assert asked.status_code == 200
        assert one.recv(4096).startswith(b"HTTP/1.1 503")


def test_a_run_that_does_not_exist_yet_lives_and_is_not_ready() -> None:
    run: Any = None
    pages = pages_of(lambda: run, lambda run: Exposed("words", "ACTIVE", {}))
    answers = {path: page("", {}) for path, page in pages.items()}
    starting = (b"STARTING\n", "text/plain; charset=utf-8")
    assert answers == {
        "/metrics": (*starting, 503), "/healthz": (*starting, 200), "/readyz": (*starting, 503)
    }  # fmt: skip


def test_a_port_that_is_taken_leaves_nothing_open() -> None:
    driver: Any = Answers(dict)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = "{}:{}".format(*taken.getsockname())
        with pytest.raises(BindError, match=f"cannot listen on {bind}"):
            DriverServer(driver, "t" * 40, {}, bind)


@contextmanager
def answering(tmp_path: Path, answer: bytes) -> Iterator[RunRecord]:
    """A run whose driver's port answers each connection with some bytes."""
    run = make(Registry(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        serving = threads.submit(serve)
        yield replace(run, state=State("ACTIVE", address="{}:{}".format(*listener.getsockname())))
        serving.result()


OK = b"HTTP/1.1 200 OK\r\nContent-Length: "


@pytest.mark.parametrize(
    ("answer", "kind", "said"),
    [
        (b"", DriverUnreachable, "words' driver at .* does not answer"),
        (OK + b"9\r\n\r\n{", DriverUnreachable, "words' driver at .* does not answer"),
        (b"\0\0\x12\x04 of HTTP/2", DriverUnreachable, "words' driver is of another release"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n{}", DriverUnreachable, "is of another release"),
        (OK + b"1\r\n\r\n{", DriverFault, "cannot answer: 200, and no JSON"),
        (OK + b"2\r\n\r\n[]", DriverFault, "cannot answer: no DriverStatus"),
        (OK + b'15\r\n\r\n{"pending": ""}', DriverFault, "cannot answer: no DriverStatus"),
    ],
)
def test_what_is_no_answer_is_told_as_what_it_is(
    tmp_path: Path, answer: bytes, kind: type[Exception], said: str
) -> None:
    with answering(tmp_path, answer) as run, ControlClient(run) as client:
        with pytest.raises(kind, match=said) as caught:
            client.status()
        if "release" in said:
            assert "topo kill --force words" in str(caught.value)


@pytest.mark.parametrize(
    ("wait_secs", "said"), [(1e12, 1e9), (float("inf"), 1e9), (float("nan"), None)]
)
def test_a_wait_that_json_lacks_is_a_long_one_or_none(
    tmp_path: Path, wait_secs: float, said: float | None
) -> None:
    class Killed(Answers):
        def begin_kill(self, wait_secs: float) -> str:
            assert wait_secs == said
            return "ACTIVE"

    with served(tmp_path, dict, Killed(dict)) as run, ControlClient(run) as client:
        if said is None:
            with pytest.raises(RunError, match="wait_secs must be a float from 0"):
                client.kill(wait_secs)
        else:
            assert client.kill(wait_secs).was == "ACTIVE"


def test_what_a_later_driver_tells_besides_is_left_out(tmp_path: Path) -> None:
    document = b'{"status": "ACTIVE", "mood": "good"}'
    answer = OK + b"%d\r\n\r\n%s" % (len(document), document)
    with answering(tmp_path, answer) as run, ControlClient(run) as client:
        assert client.status() == DriverStatus(status="ACTIVE")


def test_a_driver_on_another_machine_is_not_looked_for_on_this_one(tmp_path: Path) -> None:
    with served(tmp_path, dict) as run:
        elsewhere = replace(run, submission=replace(run.submission, host="elsewhere"))
        with pytest.raises(DriverUnreachable, match="words runs on elsewhere") as refused:
            ControlClient(elsewhere)
        assert refused.value.hint == "give the command on elsewhere"


def test_a_driver_that_does_not_answer_has_no_figures(tmp_path: Path) -> None:
    run = replace(make(Registry(tmp_path)), state=State("ACTIVE"), driver_pid=1)
    row = row_of(run)
    assert (row.acked, row.failed) == (None, None)


def test_figures_are_asked_for_while_others_are_added() -> None:
    windows = Windows()

    def add() -> None:
        for number in range(3000):
            windows.add(1000.0 * number, figures(number))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as threads:
            adding = threads.submit(add)
            while not adding.done():
                windows.last(60, 1e9, figures(3))
            adding.result()
    finally:
        sys.setswitchinterval(before)
