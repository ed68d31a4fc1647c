"""The cases of DRPC: at the server by a simulated clock, over HTTP, its ACL, and whole topologies.

The data of a case says what its bolts do in words; a table here has the bolt for each.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.cases import Case
from tests.drpc import Computing
from tests.parity.areas import Runner, parameters
from tests.property.scale import seeds
from topo import BasicBolt, FailTuple, InvalidTopologyError, Topology, TopologyBuilder, Tuple
from topo.drpc import DrpcError, DrpcSpout, LinearDrpcBuilder, RequestBolt, ReturnResults
from topo.drpc.access import Access
from topo.drpc.calls import Calls, End, Holder
from topo.drpc.linear import LinearBoltDeclarer
from topo.testing import TestCluster

# -- the server -----------------------------------------------------------------------------------


class ServerWorld:
    """A server's machine, clients that call, and one task for each function."""

    def __init__(self, case: Case) -> None:
        self.secs = case["settings"]["timeout_ms"] / 1000
        functions = {step["function"] for step in case["steps"] if "function" in step}
        self.calls = Calls(functions)
        self.now = 0.0
        self.ids: dict[str, str] = {}
        self.leases: dict[str, str] = {}
        self.ends: dict[str, tuple[End, float]] = {}

    def note_ends(self) -> None:
        for id, end in self.calls.take_ends():
            assert id not in self.ends, "a call ends once"
            self.ends[id] = end, self.now

    def fetch(self, function: str) -> list[Any]:
        holder = Holder("c", function, 0)
        self.calls.attach(holder, 1_000_000, self.now)
        self.calls.grant(holder, 1)
        return self.calls.take(holder, self.now)

    def step(self, step: Case) -> None:
        match step:
            case {"call": name, "function": function, "args": args}:
                self.ids[name] = self.calls.call(function, args, self.now, self.secs)
            case {"fetch": function, "nothing": True}:
                assert self.fetch(function) == []
            case {"fetch": function, "as": name, **more}:
                (request,) = self.fetch(function)
                self.leases[name] = request.id
                assert request.args == more.get("args", request.args)
            case {"answer": name, "result": result}:
                self.calls.answer(str(self.leases.get(name, name)), result, self.now)
            case {"fail": name}:
                self.calls.fail(self.leases[name], "Request failed")
            case {"failed": name, "reason": reason}:
                self.calls.fail(self.leases[name], reason)
            case {"acked": name}:
                self.calls.done(self.leases[name], self.now)
            case {"gone": name}:
                self.calls.gone(self.ids[name])
            case {"close": True}:
                self.calls.close()
            case {"advance_ms": ms}:
                self.now += ms / 1000
                self.calls.expire(self.now)
            case {"late": count}:
                assert self.calls.figures.late == count
            case {"result": name, "is": result}:
                assert self.ends[self.ids[name]][0] == End(result)
            case {"result": name, "error": code, **more}:
                end, at = self.ends[self.ids[name]]
                assert end.code == code
                assert all(word in end.reason for word in more.get("words", ()))
                if "after_ms" in more:
                    least, most = more["after_ms"]
                    assert least <= 1000 * at <= most
            case _:
                raise AssertionError(f"nobody knows the step {step}")
        self.note_ends()


def run_server(case: Case) -> None:
    world = ServerWorld(case)
    for step in case["steps"]:
        world.step(step)


# -- the ACL --------------------------------------------------------------------------------------


def run_acl(case: Case) -> None:
    settings = case["settings"]
    access = Access.of("", {"strict": settings["strict"], "functions": settings["acl"]})
    tokens = ("jump_topo", "jump_client", "other")
    for function, allowed in case["expect"]["allowed"].items():
        assert sorted(allowed["call"]) == sorted(
            token for token in tokens if access.may_call(function, token)
        )
        assert sorted(allowed["serve"]) == sorted(
            token for token in tokens if access.may_serve(function, token)
        )


# -- HTTP -----------------------------------------------------------------------------------------


def exclaim(function: str, args: str) -> str | None:
    """Compute what the functions of the cases compute; None: never."""
    if function == "slow":
        return None
    if function == "bad":
        raise ValueError("bad")
    return f"{args}!"


@pytest.fixture(scope="module")
def computing() -> Iterator[Computing]:
    with Computing(exclaim, ["exclaim", "slow", "bad"], timeout_secs=0.3) as server:
        yield server


def asked(server: Computing, text: str) -> tuple[int, str]:
    """Make a request as a case writes it; return the status and the body."""
    head, _, body = text.partition("\n\n")
    head, _, note = head.partition(" (")
    method, path = head.split(" ")
    headers = {} if note else {"Authorization": f"Bearer {server.token}"}
    request = urllib.request.Request(
        f"http://{server.http_address}{path}",
        body.encode() if method == "POST" else None,
        headers,
        method=method,
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def run_http(case: Case, server: Computing | None = None) -> None:
    assert server is not None, "the test gives one"
    (step,) = case["steps"]
    if case["name"] == "the server ends meanwhile":
        with Computing(exclaim, ["slow"], timeout_secs=60) as ending:
            answers: list[tuple[int, str]] = []
            thread = threading.Thread(target=lambda: answers.append(asked(ending, step["request"])))
            thread.start()
            ending.await_open(1)
            ending.stop()
            thread.join()
        (status, body) = answers[0]
    else:
        status, body = asked(server, step["request"])
    expect = case["expect"]
    assert status == expect["status"]
    assert body == expect.get("body", body)
    assert expect.get("json", {}).items() <= (json.loads(body) if "json" in expect else {}).items()
    assert all(word in body for word in expect.get("words", ()))


# -- whole topologies -----------------------------------------------------------------------------


class Exclaim(BasicBolt):
    outputs = ("result", "return_info")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.args + "!!!", tup.return_info])


class ExclaimById(BasicBolt):
    outputs = ("id", "result")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.id, tup.args + "!!!"])


class Squares(BasicBolt):
    outputs = ("id",)

    def execute(self, tup: Tuple) -> None:
        for _ in range(int(tup.args) ** 2):
            self.emit([tup.id])


class Counting(RequestBolt):
    outputs = ("id", "count")

    def begin(self) -> None:
        self.count = 0

    def execute(self, tup: Tuple) -> None:
        self.count += tup[1] if len(tup) > 1 else 1

    def finish(self) -> None:
        self.emit([self.request, self.count])


class PassOn(BasicBolt):
    outputs = ("id", "args")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.id, tup.args])


class Done(RequestBolt):
    outputs = ("id", "result")

    def execute(self, tup: Tuple) -> None:
        pass

    def finish(self) -> None:
        self.emit([self.request, "done"])


class FailingAtTheEnd(Done):
    def finish(self) -> None:
        raise FailTuple("no")


class Silent(BasicBolt):
    outputs = ("id", "result")

    def execute(self, tup: Tuple) -> None:
        pass


class Raising(Silent):
    def execute(self, tup: Tuple) -> None:
        raise ValueError("no")


class ThreeFields(BasicBolt):
    outputs = ("id", "result", "more")

    def execute(self, tup: Tuple) -> None:
        pass


class TwoStreams(BasicBolt):
    outputs = {"default": ("id", "result"), "other": ("id",)}

    def execute(self, tup: Tuple) -> None:
        pass


class Tweeters(BasicBolt):
    outputs = ("id", "tweeter")

    def __init__(self, tweeters: dict[str, list[str]]) -> None:
        self.tweeters = tweeters

    def execute(self, tup: Tuple) -> None:
        for tweeter in self.tweeters.get(tup.args, ()):
            self.emit([tup.id, tweeter])


class FollowersOf(BasicBolt):
    outputs = ("id", "follower")

    def __init__(self, followers: dict[str, list[str]]) -> None:
        self.followers = followers

    def execute(self, tup: Tuple) -> None:
        for follower in self.followers.get(tup.tweeter, ()):
            self.emit([tup.id, follower])


class Distinct(RequestBolt):
    outputs = ("id", "count")

    def begin(self) -> None:
        self.followers: set[str] = set()

    def execute(self, tup: Tuple) -> None:
        self.followers.add(tup.follower)

    def finish(self) -> None:
        self.emit([self.request, len(self.followers)])


Added = Callable[[LinearDrpcBuilder, Case], LinearBoltDeclarer]
BOLTS: dict[str, Added] = {
    "[id, args] -> [id, args + '!!!'], 3 tasks": lambda b, s: b.add_bolt(ExclaimById(), 3),
    "emits n*n tuples [id], 3 tasks": lambda b, s: b.add_bolt(Squares(), 3),
    "counts by request; at its end emits [id, count], 3 tasks, shuffle": (
        lambda b, s: b.add_bolt(Counting(), 3).shuffle_grouping()
    ),
    "sums by request; at its end emits [id, sum], 3 tasks, fields id": (
        lambda b, s: b.add_bolt(Counting(), 3).fields_grouping("id")
    ),
    "passes [id, args] on, 3 tasks": lambda b, s: b.add_bolt(PassOn(), 3),
    "the same, shuffle": lambda b, s: b.add_bolt(PassOn(), 3).shuffle_grouping(),
    "at the request's end emits [id, 'done'], 3 tasks, fields id": (
        lambda b, s: b.add_bolt(Done(), 3).fields_grouping("id")
    ),
    "at the request's end raises FailTuple('no'), 3 tasks": (
        lambda b, s: b.add_bolt(FailingAtTheEnd(), 3).fields_grouping("id")
    ),
    "the tweeters of a url, 4 tasks": lambda b, s: b.add_bolt(Tweeters(s["tweeters"]), 4),
    "their followers, 12 tasks, shuffle": (
        lambda b, s: b.add_bolt(FollowersOf(s["followers"]), 12).shuffle_grouping()
    ),
    "followers of a request, each once; at its end their number, 6 tasks, fields id, follower": (
        lambda b, s: b.add_bolt(Distinct(), 6).fields_grouping(["id", "follower"])
    ),
    "sums; at the end the total, 3 tasks, fields id": (
        lambda b, s: b.add_bolt(Counting(), 3).fields_grouping("id")
    ),
    "emits nothing, 1 task": lambda b, s: b.add_bolt(Silent()),
    "raises ValueError('no'), 1 task": lambda b, s: b.add_bolt(Raising()),
    "declares id, result, more": lambda b, s: b.add_bolt(ThreeFields()),
    "declares two streams": lambda b, s: b.add_bolt(TwoStreams()),
}
BY_HAND = {
    "spout": "DrpcSpout('test'): args, return info",
    "2": "adds !!! to args, keeps return info; shuffle",
    "3": "ReturnResults; global",
}


def topology_of(case: Case, answer: str) -> Topology:
    settings = case["settings"]
    if "bolts" not in settings:
        assert settings == BY_HAND
        builder = TopologyBuilder()
        builder.set_spout("spout", DrpcSpout("test"))
        builder.set_bolt("2", Exclaim(), 2).shuffle_grouping("spout")
        builder.set_bolt("3", ReturnResults(answer)).global_grouping("2")
        return builder.create_topology()
    linear = LinearDrpcBuilder("test", answer=answer)
    for text in settings["bolts"]:
        BOLTS[text](linear, settings)
    return linear.create_topology()


def run_topology(case: Case, seed: int = 0, answer: str = "committed") -> None:
    problem: Case = next((step for step in case["steps"] if "problem" in step), {})
    if problem:
        with pytest.raises(InvalidTopologyError) as caught:
            topology_of(case, answer)
        assert [found.code for found in caught.value.problems] == [problem["problem"]]
        return
    conf = {key: value for key, value in case["settings"].items() if key.startswith("topology.")}
    with TestCluster(seed) as cluster:
        run = cluster.submit_topology("t", topology_of(case, answer), conf)
        for step in case["steps"]:
            if "error" in step:
                with pytest.raises(DrpcError) as raised:
                    run.call("test", step["call"])
                assert raised.value.code == step["error"]
                assert all(word in raised.value.reason for word in step.get("words", ()))
            else:
                assert run.call("test", step["call"]) == step["result"]
            if seed:
                run.restart()


RUNNERS: dict[str, Runner] = {
    "drpc-server": run_server,
    "drpc-http": run_http,
    "drpc-acl": run_acl,
    "drpc-topology": run_topology,
}


@pytest.mark.parametrize("case", parameters(["drpc-server"]))
def test_a_server(case: Case) -> None:
    run_server(case)


@pytest.mark.parametrize("case", parameters(["drpc-acl"]))
def test_an_acl(case: Case) -> None:
    run_acl(case)


@pytest.mark.parametrize("case", parameters(["drpc-http"]))
def test_http(case: Case, computing: Computing) -> None:
    run_http(case, computing)


@pytest.mark.parametrize("answer", ["committed", "at_once"])
@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("case", parameters(["drpc-topology"]))
def test_a_topology(case: Case, seed: int, answer: str) -> None:
    run_topology(case, seed, answer)
