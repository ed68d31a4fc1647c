"""HttpSpout, HttpPollSpout, HttpBolt and SseSpout with servers and clients of the test's own."""

from __future__ import annotations

import contextlib
import gc
import json
import re
import shutil
import socket
import ssl
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples import log_alerts
from tests.connectors.moving import Collects, Keeps, Once, moved_until
from tests.connectors.serving import Serving
from tests.servers.mosquitto import make_certificates
from tests.servers.processes import free_port, missing
from tests.wiring import line
from topo import ComponentError, Spout, TopologyBuilder, Tuple, Unavailable
from topo.connectors import Secret
from topo.connectors.http import HttpBolt, HttpPollSpout, HttpSpout, SseSpout
from topo.testing import TestCluster, make_tuple, run_bolt
from topo.testing.cluster import SteppedRun


@pytest.fixture(autouse=True)
def told() -> None:
    Collects.counts.clear()
    Collects.rolls_back = False
    Once.given.clear()


# -- taking in ----------------------------------------------------------------------------------


class Taking:
    """A topology that takes data in, moved in the test's thread while clients ask in others."""

    def __init__(self, bolt: Any = None, **more: Any) -> None:
        self.cluster = TestCluster()
        spout = HttpSpout("127.0.0.1:0", "/in", **more)
        self.run = self.cluster.submit_topology("t", line(spout, bolt or Keeps()))
        self.until(lambda: "port" in self.run.stats().components["s"].gauges)
        self.port = int(self.run.stats().components["s"].gauges["port"])
        self.url = f"http://127.0.0.1:{self.port}/in"

    def until(self, condition: Callable[[], Any], secs: float = 0.01) -> None:
        moved_until(self.cluster, condition, secs)

    def asked(self, *requests: Callable[[], Any], secs: float = 0.01) -> list[Any]:
        """Make requests at the same time while the topology moves; return their answers."""
        answers: dict[int, Any] = {}

        def ask(number: int) -> None:
            try:
                answers[number] = requests[number]()
            except Exception as error:
                answers[number] = error

        threads = [threading.Thread(target=ask, args=(n,)) for n in range(len(requests))]
        for thread in threads:
            thread.start()
        self.until(lambda: len(answers) == len(requests), secs)
        for thread in threads:
            thread.join()
        return [answers[number] for number in range(len(requests))]

    def post(self, body: Any, key: str = "", **more: Any) -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        options = {"timeout": 60, "trust_env": False, **more}
        options["headers"] = {**headers, **options.get("headers", {})}
        return httpx.post(self.url, content=content, **options)

    def posted(self, body: Any, key: str = "", **more: Any) -> Any:
        (answer,) = self.asked(lambda: self.post(body, key, **more))
        return answer

    def values(self) -> list[Any]:
        return [row[0] for row in self.run.tuples("s")]

    def end(self) -> None:
        self.run.kill()


@pytest.fixture
def taking() -> Iterator[Callable[..., Taking]]:
    made: list[Taking] = []

    def make(*values: Any, **more: Any) -> Taking:
        made.append(Taking(*values, **more))
        return made[-1]

    yield make
    for one in made:
        with contextlib.suppress(Exception):
            one.end()


def test_a_request_is_answered_once_its_data_is_durable(taking: Any) -> None:
    late = taking(fields=("user",))
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(late.post([{"user": "ann"}, {"user": 1}])))
    thread.start()
    host: Any = late.run
    ingest = host._host.spouts[0].component._ingest
    pause = threading.Event()
    while not ingest.waiting:
        pause.wait(0.01)
    pause.wait(0.2)
    assert done == []  # nothing has moved: nothing is durable
    late.until(lambda: done)
    thread.join()
    assert (done[0].status_code, done[0].json()) == (200, {"accepted": 2})
    assert late.values() == ["ann", 1]


def test_bodies_of_every_form(taking: Any) -> None:
    def taken(body: bytes, kind: str = "application/json", **more: Any) -> list[Any]:
        one = taking(**more)
        answer = one.posted(body, headers={"Content-Type": kind})
        assert answer.status_code == 200
        return one.values()  # type: ignore[no-any-return]

    assert taken(b'{"a": 1}') == [{"a": 1}]
    assert taken(b"[1, [2]]") == [1, [2]]
    assert taken(b"[]") == []
    assert taken(b'{"a": 1}\n\n{"a": 2}\r\n', "application/x-ndjson; charset=utf-8") == [
        {"a": 1},
        {"a": 2},
    ]
    assert taken(b"one\ntwo\n", "text/plain", value="lines") == ["one", "two"]
    assert taken("Käse\n".encode(), "text/plain", value="str") == ["Käse\n"]
    assert taken(b"\xff", "", value="bytes") == [b"\xff"]
    translated = taken(
        b"5",
        fields=("n", "path"),
        translate=lambda request: [request.value + 1, request.headers["content-type"]],
    )
    assert translated == [6]


def test_restarts_and_rollbacks_double_nothing_and_clients_do_not_notice(taking: Any) -> None:
    Collects.rolls_back = True
    one = taking(Collects(), fields=("n",))
    sent = 0
    for _ in range(10):
        requests = [lambda n=n: one.post([{"n": n}, {"n": n + 0.5}]) for n in range(sent, sent + 8)]
        sent += 8
        assert {answer.status_code for answer in one.asked(*requests, secs=0.25)} == {200}
        one.run.restart()
    moved_until(one.cluster, lambda: len(Collects.counts) >= 2 * sent, 0.25)
    assert Collects.counts == {n / 2: 1 for n in range(2 * sent)}


def test_a_request_before_a_new_instance_is_active_waits(taking: Any, monkeypatch: Any) -> None:
    one, answers = taking(fields=("n",)), []

    def activate(spout: Any, activates: Any = HttpSpout.activate) -> None:
        threading.Thread(target=lambda: answers.append(one.post([{"n": 1}]))).start()
        pause = threading.Event()
        while not spout._ingest.waiting and not answers:
            pause.wait(0.01)
        activates(spout)

    monkeypatch.setattr(HttpSpout, "activate", activate)
    one.run.restart()
    one.until(lambda: answers)
    assert (answers[0].status_code, one.values()) == (200, [1])


def test_a_key_is_taken_once(taking: Any) -> None:
    one = taking(Collects(), fields=("n",), remember=3)
    answers = one.asked(*[lambda: one.post({"n": 1}, "a")] * 5)
    assert [answer.status_code for answer in answers] == [200] * 5
    one.run.restart()
    assert one.posted({"n": 1}, "a").status_code == 200
    one.until(lambda: Collects.counts)
    assert Collects.counts == {1: 1}
    for key in ("b", "c", "d"):
        one.posted({"n": key}, key)
    one.posted({"n": 1}, "a")  # forgotten: three were newer
    one.posted({"n": "d"}, "d")
    one.until(lambda: Collects.counts.get(1) == 2)
    assert Collects.counts == {1: 2, "b": 1, "c": 1, "d": 1}


def test_a_request_that_cannot_be_taken_is_refused_whole(taking: Any) -> None:
    one = taking(fields=("n",), translate=lambda request: [request.value["n"] + 1])
    answer = one.posted([{"n": 1}, {"n": "x"}])
    assert answer.status_code == 422
    assert "a record cannot be taken: TypeError" in answer.json()["error"]
    assert one.posted([{"n": 5}]).status_code == 200
    assert one.values() == [6]
    other = taking(fields=("n",), on_bad="stream")
    assert other.posted(b'[{"n": 1}, 2]').status_code == 200
    assert other.values() == [1]
    assert other.run.tuples("s", "bad")[0][0] == 2
    with pytest.raises(ComponentError, match="would let any client stop the topology"):
        HttpSpout(on_bad="stop")


def test_a_token_is_asked_for(taking: Any) -> None:
    one = taking(token=Secret("s3cret"))
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic s3cret"}):
        answer = one.posted([1], headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
    right = {"Authorization": "Bearer s3cret"}
    assert one.posted([1], headers=right).status_code == 200
    assert one.values() == [1]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example", "Content-Type": "text/plain"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Host": "evil.example:80"},
        {"Host": "[::1"},
    ],
)
def test_a_page_posts_with_a_token_only(taking: Any, headers: dict[str, str]) -> None:
    one = taking()
    answer = one.posted([1], headers=headers)
    assert answer.status_code == 403
    assert "token=" in answer.json()["error"]
    for host in ("localhost:80", "127.0.0.2", "[::1]:8080"):
        assert one.posted([2], headers={"Host": host}).status_code == 200
    other = taking(token="x" * 20)
    headers = {**headers, "Authorization": f"Bearer {'x' * 20}"}
    assert other.posted([3], headers=headers).status_code == 200
    assert (one.values(), other.values()) == ([2] * 3, [3])


def test_keys_are_short(taking: Any) -> None:
    one = taking()
    assert one.posted([1], "k" * 201).status_code == 400
    assert one.posted([1], "k" * 200).status_code == 200
    with TestCluster() as cluster:  # a component of any name posts
        builder = TopologyBuilder()
        builder.set_spout("s", Once())
        builder.set_bolt("x" * 900, HttpBolt(one.url)).shuffle_grouping("s")
        run = cluster.submit_topology("outer", builder.create_topology())
        one.asked(run.settle)
        assert run.status == "COMPLETED", run.reason
    assert len(one.values()) == 1 + Once.most


def test_what_waits_is_counted_as_it_is_in_memory(taking: Any) -> None:
    one = taking(max_waiting_bytes=1_000_000, max_in_flight=1_000)
    body = b"[" + b",".join([b"{}"] * 10_000) + b"]"
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(one.post(body))) for _ in range(5)]
    for thread in threads:
        thread.start()
    pause = threading.Event()
    while len(answers) < 4:  # nothing moves: one of them waits
        pause.wait(0.01)
    assert {answer.status_code for answer in answers} == {429}
    one.until(lambda: len(answers) == 5)
    for thread in threads:
        thread.join()
    assert len(one.values()) == 10_000


def test_connections_that_begin_no_handshake_count_and_go(taking: Any, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        missing("openssl")
    files = make_certificates(tmp_path)
    one = taking(tls=files, max_connections=5, read_secs=0.5)
    held = [socket.create_connection(("127.0.0.1", one.port), timeout=30) for _ in range(20)]
    try:
        for connection in held:  # 15 at once, the others after half a second
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    finally:
        for connection in held:
            connection.close()
    url = one.url.replace("http:", "https:")
    secure = context({"ca": files["cert"]})
    answers: list[Any] = []

    def post() -> None:
        with contextlib.suppress(httpx.TransportError):  # the last ones are being closed
            answers.append(httpx.post(url, json=[1], verify=secure))

    while not answers:
        one.asked(post)
    assert answers[0].status_code == 200


def test_an_inactive_topology_takes_nothing(taking: Any) -> None:
    one = taking()
    one.run.deactivate()
    one.cluster.advance(1)
    answer = one.posted([1])
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    one.run.activate()
    one.cluster.advance(1)
    assert one.posted([2]).status_code == 200
    assert one.values() == [2]


def test_a_full_queue_says_so(taking: Any) -> None:
    one = taking(max_in_flight=3)
    answers: list[Any] = []
    threads = [threading.Thread(target=lambda: answers.append(one.post([1]))) for _ in range(20)]
    for thread in threads:
        thread.start()
    pause = threading.Event()
    while len(answers) < 17:  # nothing moves
        pause.wait(0.01)
    assert {(a.status_code, a.headers["retry-after"]) for a in answers} == {(429, "1")}
    one.until(lambda: len(answers) == 20)
    for thread in threads:
        thread.join()
    assert Counter(answer.status_code for answer in answers) == {429: 17, 200: 3}
    assert one.values() == [1, 1, 1]


def test_what_is_not_taken_in_time_is_not_taken_at_all(taking: Any) -> None:
    one = taking(answer_secs=0.2)
    answer = one.post([1])  # nothing moves meanwhile
    assert answer.status_code == 503
    assert "was not taken in time" in answer.json()["error"]
    one.cluster.advance(1)
    assert one.values() == []


def test_data_comes_over_tls(taking: Any, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        missing("openssl")
    files = make_certificates(tmp_path)
    one = taking(tls=files)
    url = one.url.replace("http:", "https:")
    tls = {"ca": files["cert"]}
    (run,) = one.asked(lambda: run_bolt(HttpBolt(url, tls=tls), batches=[batch(1, 2)]))
    assert sorted(value["n"] for value in one.values()) == [1, 2], run
    distrustful = HttpBolt(url, retry_secs=0.1)
    (error,) = one.asked(lambda: run_bolt(distrustful, batches=[batch(1)]))
    assert isinstance(error, ComponentError)
    assert "the server's certificate is refused" in str(error)
    assert one.posted([3]) is not None  # plain HTTP: some error
    (answer,) = one.asked(lambda: httpx.post(url, json=[{"n": 4}], verify=context(tls)))
    assert answer.status_code == 200


def context(tls: dict[str, str]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=tls["ca"])


# -- hostile clients ------------------------------------------------------------------------------


def said(port: int, *parts: bytes, shuts: bool = False) -> bytes:
    """Say something, and return what comes until the server closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        with contextlib.suppress(OSError):
            for part in parts:
                connection.sendall(part)
            if shuts:
                connection.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(OSError):
            while data := connection.recv(65_536):
                answer += data
        return answer


HEAD = b"POST /in HTTP/1.1\r\nHost: localhost\r\n"


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200 + b"\r\n\r\n"], b"400"),
        ([b"GARBAGE\r\n\r\n"], b"400"),
        ([b"POST /in HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n"], b"431"),
        ([b"GET /in HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"], b"405"),
        ([b"POST /other HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"], b"404"),
        ([HEAD + b"Content-Length: 99999999\r\n\r\n"], b"413"),
        ([HEAD + b"Content-Length: -5\r\n\r\n"], b"400"),
        ([HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n"], b"400"),
        ([HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n"], b"400"),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"fffff\r\n" + b"x" * 0xFFFFF + b"\r\n"] * 1
         + [b"fffff\r\n" + b"x" * 0xFFFFF + b"\r\n"], b"413"),
        ([HEAD + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n"], b"400"),
        ([HEAD + b"Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}"], b"415"),
        ([HEAD + b"Content-Length: 3\r\nConnection: close\r\n\r\n{{{"], b"400"),
        ([HEAD + b"Content-Length: 2\r\nConnection: close\r\n\r\n\xff\xfe"], b"400"),
        ([HEAD + b"Content-Length: 100000\r\nConnection: close\r\n\r\n" + b"[" * 100_000], b"400"),
        ([HEAD + b"Content-Length: 1800\r\nConnection: close\r\n\r\n"
          + b"[" * 900 + b"]" * 900], b"400"),
        ([HEAD + b"Content-Length: 2701\r\nConnection: close\r\n\r\n" + b'{"a":' * 450 + b"1"
          + b"}" * 450], b"400"),
        ([HEAD + b"Content-Length: 10\r\n\r\n123"], b"408"),
        ([b"POST /in HT"], b"408"),
        ([b""], b""),
    ],
)  # fmt: skip
def test_no_request_harms_the_topology(taking: Any, parts: list[bytes], status: bytes) -> None:
    one = taking(read_secs=0.3)
    (answer,) = one.asked(lambda: said(one.port, *parts))
    assert answer.partition(b" ")[2][:3] == status, answer[:300]
    assert one.posted([1]).status_code == 200
    assert one.values() == [1]
    assert one.run.status == "ACTIVE"


def test_clients_that_go_away_are_forgotten(taking: Any) -> None:
    one = taking(read_secs=5)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", one.port)) as connection:
            connection.sendall(HEAD + b"Content-Length: 10\r\n\r\n123")
    for _ in range(20):  # these have said it all
        with socket.create_connection(("127.0.0.1", one.port)) as connection:
            connection.sendall(HEAD + b"Content-Length: 3\r\n\r\n[2]")
    assert one.posted([1]).status_code == 200
    one.until(lambda: 1 in one.values())
    assert set(one.values()) <= {1, 2}


def test_many_slow_connections_leave_no_room_and_then_go(taking: Any) -> None:
    one = taking(max_connections=20, read_secs=0.5)
    slow = [socket.create_connection(("127.0.0.1", one.port)) for _ in range(20)]
    try:
        for connection in slow:
            connection.sendall(b"POST /in HTTP/1.1\r\nX-A: ")
        one.until(lambda: answered(one))
    finally:
        for connection in slow:
            connection.close()
    assert one.values()


def test_the_first_connection_over_the_limit_is_closed_and_no_other(taking: Any) -> None:
    one = taking(max_connections=2, read_secs=60.0)
    held = [socket.create_connection(("127.0.0.1", one.port), timeout=30) for _ in range(3)]
    try:
        with contextlib.suppress(ConnectionResetError):
            assert held[2].recv(1) == b""
        for connection in held[:2]:
            connection.setblocking(False)
            with pytest.raises(BlockingIOError):
                connection.recv(1)
    finally:
        for connection in held:
            connection.close()


def answered(one: Taking) -> bool:
    answer = one.posted([1])
    return isinstance(answer, httpx.Response) and answer.status_code == 200


def test_a_connection_serves_many_requests_and_continues_on_demand(taking: Any) -> None:
    one = taking()
    body = b"[1]"
    first = HEAD + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n" + body
    last = HEAD + b"Content-Length: 3\r\nConnection: close\r\n\r\n" + body
    (answer,) = one.asked(lambda: said(one.port, first, last))
    assert answer.count(b"HTTP/1.1 100") == 1
    assert answer.count(b"HTTP/1.1 200") == 2
    assert one.values() == [1, 1]


def test_an_address_that_is_taken_is_waited_for(taking: Any) -> None:
    first = taking()
    second = HttpSpout(f"127.0.0.1:{first.port}")
    with TestCluster() as cluster:
        run = cluster.submit_topology("u", line(second, Keeps()))
        moved_until(cluster, lambda: run.status == "STALLED", 0)
        assert f"127.0.0.1:{first.port}" in run.reason
        first.end()
        moved_until(cluster, lambda: run.status == "ACTIVE", 0.25)


# -- a server of the test's own -------------------------------------------------------------------


class Server(Serving):
    """A server whose answers the test scripts."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answer: Callable[[Any, bytes], tuple[int, dict[str, str], bytes]] = (
            lambda request, body: (200, {}, b"{}")
        )
        outer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                with lock:
                    headers = {name.lower(): value for name, value in self.headers.items()}
                    outer.requests.append((self.path, headers, body))
                    status, more, content = outer.answer(self, body)
                if status == 0:
                    self.close_connection = True
                    return
                self.send_response(status)
                for name, value in more.items():
                    self.send_header(name, value)
                if status != 304:
                    self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
                self.wfile.flush()

            do_GET = do_POST

            def log_message(self, *args: Any) -> None:
                pass

        self.serve(Handler)


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


# -- posting ------------------------------------------------------------------------------------


def batch(*values: Any) -> list[Tuple]:
    return [make_tuple({"n": value}) for value in values]


def sent(server: Server) -> list[Any]:
    return [json.loads(body)["n"] for _, _, body in server.requests]


@pytest.mark.parametrize("guarantee", ["none", "at_least_once", "exactly_once"])
def test_tuples_are_posted(server: Server, guarantee: Any) -> None:
    headers = {"Authorization": Secret("Bearer x")}
    bolt = HttpBolt(
        lambda tup: None if tup.n == 3 else f"{server.url}/{tup.n % 2}",
        headers=headers,
        guarantee=guarantee,
    )
    run = run_bolt(bolt, batches=[batch(*range(50)), batch(50)])
    run.commit()
    run.bolt.cleanup()
    assert sorted(sent(server)) == [n for n in range(51) if n != 3]
    assert all(path == f"/{json.loads(body)['n'] % 2}" for path, _, body in server.requests)
    assert len({headers["idempotency-key"] for _, headers, _ in server.requests}) == 50
    assert {headers["content-type"] for _, headers, _ in server.requests} == {"application/json"}
    assert {headers["authorization"] for _, headers, _ in server.requests} == {"Bearer x"}


class Rollback(HttpBolt):
    """Fails batches, before their commit and after it."""

    def pre_commit(self, batch_id: int) -> None:
        super().pre_commit(batch_id)
        if batch_id % 5 == 2 and not int(self.context.now()) % 2:
            raise Unavailable("now", after_secs=1)

    def committed(self, batch_id: int) -> None:
        super().committed(batch_id)
        if batch_id % 5 == 4 and not int(self.context.now()) % 2:
            raise Unavailable("now", after_secs=1)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once"])
def test_a_server_that_knows_keys_gets_each_committed_tuple_once(
    server: Server, guarantee: Any
) -> None:
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", line(Once(), Rollback(server.url, guarantee=guarantee)))
        while run.status in ("ACTIVE", "STALLED"):
            run.step()
            cluster.advance(1)
    by_key: dict[str, set[int]] = {}
    for _, headers, body in server.requests:
        by_key.setdefault(headers["idempotency-key"], set()).add(json.loads(body)["number"])
    assert all(len(same) == 1 for same in by_key.values())
    once = [number for same in by_key.values() for number in same]
    if guarantee == "exactly_once":
        assert 0 < len(once) == len(set(once)) < 60  # what was rolled back is not among them
    else:
        assert set(once) == set(range(60))


def test_what_a_server_refuses_is_rejected_alone(server: Server) -> None:
    server.answer = lambda request, body: (
        (422, {}, b"no such user") if b"1" in body else (204, {}, b"")
    )
    run = run_bolt(HttpBolt(server.url, on_bad="stream"), batches=[batch(0, 1, 2)])
    (rejected,) = run.emitted
    assert rejected[0] == ["", b'{"n":1}']
    assert "HTTP 422: no such user" in rejected[1]
    late = HttpBolt(server.url, on_bad="stream", guarantee="exactly_once")
    run = run_bolt(late, batches=[batch(0, 1), []])
    assert "HTTP 422: no such user" in run.emitted[0][1]
    with pytest.raises(ValueError, match="HTTP 422: no such user"):
        run_bolt(HttpBolt(server.url), batches=[batch(1)])


def test_a_server_that_is_busy_is_asked_again(server: Server) -> None:
    answers = iter([(503, {}, b""), (429, {"Retry-After": "0"}, b""), (0, {}, b"")])
    server.answer = lambda request, body: next(answers, (200, {}, b""))
    run_bolt(HttpBolt(server.url, concurrency=1), batches=[batch(1)])
    assert sent(server) == [1] * 4
    assert len({headers["idempotency-key"] for _, headers, _ in server.requests}) == 1
    server.answer = lambda request, body: (503, {"Retry-After": "70"}, b"maintenance")
    with pytest.raises(Unavailable, match="HTTP 503: maintenance") as caught:
        run_bolt(HttpBolt(server.url, retry_secs=0.1), batches=[batch(1)])
    assert caught.value.after_secs == 70
    closed = f"http://ann:secret@127.0.0.1:{free_port()}"
    with pytest.raises(Unavailable, match="refused") as caught:
        run_bolt(HttpBolt(closed, retry_secs=0.1), batches=[batch(1)])
    assert "secret" not in str(caught.value)
    lost = HttpBolt(closed, guarantee="none")
    assert run_bolt(lost, batches=[batch(1)]).emitted == []
    server.answer = lambda request, body: (401, {}, b"")
    with pytest.raises(ComponentError, match="HTTP 401"):
        run_bolt(HttpBolt(server.url, on_bad="skip"), batches=[batch(1)])


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_loses_nothing_and_is_named(server: Server, status: int) -> None:
    server.answer = lambda request, body: (
        (status, {"Location": "/new"}, b"moved") if request.path == "/old" else (200, {}, b"")
    )
    with pytest.raises(ComponentError, match=f"HTTP {status}: moved: .* redirects to /new"):
        run_bolt(HttpBolt(f"{server.url}/old", on_bad="skip"), batches=[batch(1)])
    assert [path for path, _, _ in server.requests] == ["/old"]


@pytest.mark.parametrize("kind", [HttpPollSpout, SseSpout])
@pytest.mark.parametrize(("elsewhere", "gets_secret"), [(True, False), (False, True)])
def test_a_redirect_takes_no_secret_to_another_origin(
    server: Server, kind: Any, elsewhere: bool, gets_secret: bool
) -> None:
    other = Server()
    target = other if elsewhere else server

    def answer(request: Any, body: bytes) -> Any:
        if request.path == "/old":
            return 302, {"Location": f"{target.url}/new"}, b""
        return 200, {"Content-Type": "text/event-stream"}, b'id: 1\ndata: "x"\n\n'

    server.answer = answer
    other.answer = lambda request, body: (200, {"Content-Type": "text/event-stream"},
                                          b'id: 1\ndata: "x"\n\n')  # fmt: skip
    try:
        spout = kind(f"{server.url}/old", headers={"X-Api-Key": Secret("SESAME")}, value="str")
        polling = Polling(spout)
        polling.until(lambda: polling.rows())
        polling.run.kill()
    finally:
        other.close()
    path, headers, _ = next(one for one in target.requests if one[0] == "/new")
    assert ("x-api-key" in headers) is gets_secret, path


def test_headers_carry_what_headers_can(server: Server) -> None:
    with TestCluster() as cluster:
        builder = TopologyBuilder()
        builder.set_spout("s", Once())
        builder.set_bolt("größe\n50%", HttpBolt(server.url)).shuffle_grouping("s")
        run = cluster.submit_topology("t", builder.create_topology())
        run.settle()
        assert run.status == "COMPLETED", run.reason
    key = server.requests[0][1]["idempotency-key"]
    assert "/gr%C3%B6%C3%9Fe%0A50%25/0/" in key
    for value in ("ä", "a\nb"):
        with pytest.raises(ComponentError, match=r"'X-A'.*no header carries") as caught:
            run_bolt(HttpBolt(server.url, headers={"X-A": Secret(value)}), batches=[batch(1)])
        assert value not in str(caught.value)


def test_from_topology_to_topology_each_tuple_counts_once(taking: Any) -> None:
    inner = taking(Collects(), fields=("number",))
    with TestCluster() as cluster:
        sink = Rollback(inner.url, guarantee="exactly_once", retry_secs=20)
        run = cluster.submit_topology("outer", line(Once(), sink))
        ended = threading.Event()

        def move() -> None:
            while run.status in ("ACTIVE", "STALLED"):
                run.step()
                cluster.advance(1)
            ended.set()

        thread = threading.Thread(target=move)
        thread.start()
        inner.until(ended.is_set)
        thread.join()
    inner.until(lambda: Collects.counts)
    assert set(Collects.counts.values()) == {1}
    assert 0 < len(Collects.counts) < 60


def test_the_example_alerts_once_a_minute(server: Server, tmp_path: Path) -> None:
    log = tmp_path / "app.log"
    log.write_text("2026-11-19 12:00:00 ERROR pay: no\n" * 4 + "no line of a log\n")
    with TestCluster() as cluster:
        topology = log_alerts.topology(str(tmp_path / "*.log"), server.url)
        run = cluster.submit_topology("logs", topology)
        moved_until(cluster, lambda: len(run.tuples("logs")) == 5, 1)
        assert run.tuples("alert", "alerts") == []
        with log.open("a") as more:
            more.write("2026-11-19 12:00:01 ERROR pay: yes\n" * 7)
            more.write("2026-11-19 12:00:01 ERROR mail: no\n" * 4)
            more.write("2026-11-19 12:00:01 FATAL mail: out of memory\n")
        moved_until(cluster, lambda: len(run.tuples("logs")) == 17, 1)
        cluster.advance(61)
        with log.open("a") as more:
            more.write("2026-11-19 12:01:02 FATAL mail: no memory\n")
        moved_until(cluster, lambda: len(server.requests) == 3, 1)
    alerts = [json.loads(body) for _, _, body in server.requests]
    assert sorted((one["rule"], one["service"], one["count"]) for one in alerts) == [
        ("errors", "pay", 5),
        ("out of memory", "mail", 1),
        ("out of memory", "mail", 1),
    ]


# -- asking -------------------------------------------------------------------------------------


class Polling:
    """A topology that asks the server."""

    def __init__(self, spout: Spout) -> None:
        self.cluster = TestCluster()
        self.run: SteppedRun = self.cluster.submit_topology("t", line(spout, Keeps()))

    def until(self, condition: Callable[[], Any], secs: float = 0.01) -> None:
        moved_until(self.cluster, condition, secs)

    def rows(self) -> list[Any]:
        return self.run.tuples("s")


def test_a_document_is_emitted_when_it_is_another(server: Server) -> None:
    documents = ["a", "a", "b"]

    def answer(request: Any, body: bytes) -> Any:
        tag = f'"{documents[0]}"'
        if request.headers["if-none-match"] == tag:
            return 304, {}, b""
        return 200, {"ETag": tag}, json.dumps([{"n": documents[0]}]).encode()

    server.answer = answer
    polling = Polling(HttpPollSpout(server.url, every_secs=10, fields="n"))
    polling.until(lambda: polling.rows())
    polling.run.restart()
    polling.until(lambda: len(server.requests) >= 4, 5)
    assert polling.rows() == [["a"]]
    documents[:2] = ["b", "b"]
    polling.until(lambda: len(polling.rows()) > 1, 5)
    assert polling.rows() == [["a"], ["b"]]
    polling.run.kill()


@pytest.mark.parametrize("restarts", [False, True])
def test_a_list_that_grows_is_read_from_the_cursor_on(server: Server, restarts: bool) -> None:
    def answer(request: Any, body: bytes) -> Any:
        after = int(re.search(r"after=(-?\d+)", request.path).group(1))  # type: ignore[union-attr]
        return 200, {}, json.dumps(list(range(after + 1, min(after + 11, 95)))).encode()

    server.answer = answer
    spout = HttpPollSpout(
        server.url,
        every_secs=60,
        cursor=lambda records: records[-1],
        params=lambda last: {"after": -1 if last is None else last},
    )
    polling = Polling(spout)
    before = 0
    while len(polling.rows()) < 95:
        polling.until(lambda: len(polling.rows()) > before)  # noqa: B023
        before = len(polling.rows())
        if restarts:
            polling.run.restart()
    assert [row[0] for row in polling.rows()] == list(range(95))
    polling.run.kill()


def test_answers_that_are_errors(server: Server) -> None:
    def reason(status: int, **more: Any) -> str:
        server.answer = lambda request, body: (status, {}, b"because")
        polling = Polling(HttpPollSpout(server.url, **more))
        with contextlib.suppress(ComponentError):
            polling.until(lambda: polling.run.status == "STALLED", 0)
        found = f"{polling.run.status} {polling.run.reason}"
        with contextlib.suppress(ComponentError):
            polling.run.kill()
        return found

    assert re.search("STALLED .*HTTP 500: because", reason(500))
    assert re.search("FAILED .*HTTP 403: because", reason(403))
    assert re.search("FAILED .*a record cannot be read", reason(200))
    assert re.search("FAILED .*more than 3 bytes", reason(200, max_bytes=3))


def test_a_request_that_is_under_way_at_the_end_leaves_no_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, held, before = threading.Event(), threading.Event(), set(threading.enumerate())
    connect = socket.create_connection

    def connected(*args: Any, **more: Any) -> socket.socket:
        begun.set()
        held.wait(30)
        return connect(*args, **more)

    monkeypatch.setattr(socket, "create_connection", connected)
    polling = Polling(HttpPollSpout(server.url))
    polling.until(begun.is_set)
    polling.run.kill()
    held.set()
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("topo-http-poll"):
            thread.join()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    assert not caught


# -- events -------------------------------------------------------------------------------------


class Events(Serving):
    """A server of events: 0, 1, 2 and so on, after the id that it is told; it ends connections."""

    def __init__(self, count: int, each: int, end: bytes = b"\n") -> None:
        self.asked: list[str | None] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                last = self.headers["last-event-id"]
                outer.asked.append(last)
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                first = 0 if last is None else int(last) + 1
                for number in range(first, min(first + each, count)):
                    text = f': comment\nid: {number}\nevent: n\ndata: {{\ndata: "n": {number}}}\n\n'
                    self.wfile.write(text.encode().replace(b"\n", end))
                self.wfile.flush()
                if first + each >= count:
                    outer.held.wait(30)

            def log_message(self, *args: Any) -> None:
                pass

        self.held = threading.Event()
        self.serve(Handler)

    def close(self) -> None:
        self.held.set()
        super().close()


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_events_resume_after_the_last_id(end: bytes) -> None:
    events = Events(100, 30, end)
    try:
        polling = Polling(SseSpout(events.url, value="json", fields=("n", "event", "id"),
                                   translate=lambda e: [e.value["n"], e.event, e.id]))  # fmt: skip
        while len(polling.rows()) < 100:
            before = len(polling.rows())
            polling.until(lambda: len(polling.rows()) > before)  # noqa: B023
            polling.run.restart()
        assert polling.rows() == [[n, "n", str(n)] for n in range(100)]
        assert events.asked == [None, "29", "59", "89"]
        polling.run.kill()
    finally:
        events.close()


def test_an_answer_that_is_no_stream_is_an_error(server: Server) -> None:
    polling = Polling(SseSpout(server.url))
    with pytest.raises(ComponentError, match="no text/event-stream"):
        polling.until(lambda: False)
    server.answer = lambda request, body: (503, {}, b"")
    polling = Polling(SseSpout(server.url))
    polling.until(lambda: polling.run.status == "STALLED", 0)
    assert "HTTP 503" in polling.run.reason
    polling.run.kill()


def test_arguments_that_cannot_be_meant() -> None:
    url = "http://host"
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: HttpSpout("8080"), "bind='8080'"),
        (lambda: HttpSpout(path="in"), "path='in'"),
        (lambda: HttpSpout(tls={"ca": "x"}), 'needs "cert"'),
        (lambda: HttpSpout(max_body=0), "max_body=0"),
        (lambda: HttpPollSpout("ftp://host"), "url='ftp://host'"),
        (lambda: HttpPollSpout(()), "url="),
        (lambda: HttpPollSpout(url, cursor=max), "without params="),
        (lambda: HttpBolt(url, guarantee="by_batch"), "replaces nothing"),
        (lambda: HttpBolt(url, method="GET"), "method='GET'"),
        (lambda: HttpBolt("host:99999"), "url="),
        (lambda: SseSpout(url, idle_secs=0), "idle_secs=0"),
    ]
    for call, message in wrong:
        with pytest.raises(ComponentError, match=message):
            call()
    with TestCluster() as cluster:
        builder = TopologyBuilder()
        builder.set_spout("s", HttpSpout("127.0.0.1:0"), parallelism=2)
        run = cluster.submit_topology("t", builder.create_topology())
        with pytest.raises(ComponentError, match="one task listens"):
            run.step()
