"""DRPC: what is refused, what a request's instances may do, and how a line comes back."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, call

import httpx
import pytest

from tests.connectors.moving import moved_until
from tests.drpc import Computing
from topo import (
    BasicBolt,
    ComponentError,
    InvalidTopologyError,
    TopologyBuilder,
    Tuple,
    UncaughtError,
    UnsavableAttributeError,
)
from topo.config.masters import split_address
from topo.drpc import DrpcError, DrpcSpout, LinearDrpcBuilder, RequestBolt, ReturnResults
from topo.drpc.access import Access
from topo.drpc.calls import LARGEST, SETTLED, Calls, Holder
from topo.drpc.client import DrpcClient
from topo.drpc.desk import Desk
from topo.drpc.server import DrpcServer, ServerOptions
from topo.errors import ConfigError
from topo.serving import connections
from topo.testing import TestCluster


class Echo(BasicBolt):
    outputs = ("id", "result")

    def execute(self, tup: Tuple) -> None:
        self.emit([tup.id, tup.args])


class Gather(RequestBolt):
    outputs = ("id", "count")

    def begin(self) -> None:
        self.count = 0

    def execute(self, tup: Tuple) -> None:
        self.count += 1

    def finish(self) -> None:
        self.emit([self.request, self.count])


class Split(BasicBolt):
    outputs = ("id", "word")

    def execute(self, tup: Tuple) -> None:
        for word in tup.args.split():
            if word == "fail":
                raise ValueError("a word that fails")
            self.emit([tup.id, word])


def problems_of(builder: Any) -> list[Any]:
    with pytest.raises(InvalidTopologyError) as caught:
        builder.create_topology()
    return list(caught.value.problems)


# -- what is refused ------------------------------------------------------------------------------


def test_a_gathering_bolt_has_to_hear_of_requests() -> None:
    builder = TopologyBuilder()
    builder.set_spout("drpc", DrpcSpout("f"))
    builder.set_bolt("gather", Gather(), 3).shuffle_grouping("drpc")
    (problem,) = problems_of(builder)
    assert problem.code == "drpc-requests"
    assert ".all_grouping(\"drpc\", stream='requests')" in problem.hint


def test_announcements_that_go_to_one_of_many_tasks_are_too_few() -> None:
    builder = TopologyBuilder()
    builder.set_spout("drpc", DrpcSpout("f"))
    gather = builder.set_bolt("gather", Gather(), 3).shuffle_grouping("drpc")
    gather.shuffle_grouping("drpc", stream="requests")
    assert [problem.code for problem in problems_of(builder)] == ["drpc-requests"]


def test_tuples_have_to_come_to_the_task_that_hears_of_the_request() -> None:
    builder = TopologyBuilder()
    builder.set_spout("drpc", DrpcSpout("f"))
    gather = builder.set_bolt("gather", Gather(), 3).shuffle_grouping("drpc")
    gather.fields_grouping("drpc", "id", stream="requests")
    (problem,) = problems_of(builder)
    assert problem.code == "drpc-last"


def test_the_last_gathering_bolt_of_a_chain_makes_one_result() -> None:
    builder = LinearDrpcBuilder("f")
    builder.add_bolt(Split(), 2)
    builder.add_bolt(Gather(), 3).shuffle_grouping()
    (problem,) = problems_of(builder)
    assert problem.code == "drpc-last"
    assert '.fields_grouping("id")' in problem.hint


def test_a_chain_without_a_bolt() -> None:
    assert [problem.code for problem in problems_of(LinearDrpcBuilder("f"))] == ["drpc-result"]


@pytest.mark.parametrize("name", ["", 3, "x" * 300])
def test_a_function_has_a_name(name: Any) -> None:
    with pytest.raises(ComponentError, match="takes the name of a function"):
        DrpcSpout(name)


def test_answers_are_sent_in_one_of_two_ways() -> None:
    with pytest.raises(ComponentError, match="'committed' or 'at_once'"):
        ReturnResults("later")


def test_calls_need_ackers() -> None:
    builder = LinearDrpcBuilder("f")
    builder.add_bolt(Echo())
    with TestCluster() as cluster:
        conf = {"topology.acker.executors": 0}
        run = cluster.submit_topology("t", builder.create_topology(), conf)
        with pytest.raises(UncaughtError, match="needs ackers"):
            run.call("f", "x")


def test_a_topology_without_functions_has_no_server() -> None:
    from topo import FromList

    builder = TopologyBuilder()
    builder.set_spout("s", FromList([["a"]], "word"))
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        with pytest.raises(DrpcError, match="computes no function"):
            run.call("f", "x")


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"function": {}}, "function"),
        ({"strict": 1}, "a wrong value"),
        ({"functions": {"f": {"calls": []}}}, "`call` and `serve`"),
        ({"functions": {"f": {"call": "token"}}}, "a list of tokens"),
        ({"functions": {"f": {"serve": ["token"]}}}, "one token"),
    ],
)
def test_an_acl_that_is_none(document: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Access.of("", document)


def test_an_entry_without_serve_is_served_by_nobody() -> None:
    access = Access.of("own", {"functions": {"f": {"call": ["a"]}}})
    assert not access.may_serve("f", "")
    assert not access.may_serve("f", "own")
    assert access.knows("a")
    assert not access.knows("")


@pytest.mark.parametrize("bind", ["0.0.0.0:0", "192.0.2.1:80"])
def test_an_address_that_others_reach_needs_a_token_and_tls(bind: str) -> None:
    with pytest.raises(ConfigError, match="could know the token"):
        DrpcServer(ServerOptions(bind, access=Access("t")))
    with pytest.raises(ConfigError, match="plain text"):
        DrpcServer(ServerOptions(bind, access=Access("t"), has_chosen_token=True))


# -- requests -------------------------------------------------------------------------------------


def gathering(answer: str = "committed", **bolts: Any) -> Any:
    builder = LinearDrpcBuilder("f", answer=answer)
    builder.add_bolt(bolts.get("split") or Split(), 2)
    builder.add_bolt(bolts.get("gather") or Gather(), 2).fields_grouping("id")
    return builder.create_topology()


@pytest.mark.parametrize("answer", ["committed", "at_once"])
def test_no_answer_is_made_without_the_tuples_of_a_bolt_that_failed(answer: str) -> None:
    with TestCluster() as cluster:
        conf = {"topology.uncaught.error": "fail"}
        run = cluster.submit_topology("t", gathering(answer), conf)
        assert run.call("f", "a b c") == "3"
        with pytest.raises(DrpcError, match="a word that fails") as raised:
            run.call("f", "a b fail c")
        assert raised.value.code == "FAILED_REQUEST"
        assert run.call("f", "d") == "1"


def test_a_failure_in_a_gathering_bolt_fails_its_request_alone() -> None:
    class Picky(Gather):
        def execute(self, tup: Tuple) -> None:
            if tup.word == "bad":
                raise ValueError("a bad word")
            super().execute(tup)

    with TestCluster() as cluster:
        conf = {"topology.uncaught.error": "fail"}
        run = cluster.submit_topology("t", gathering(gather=Picky()), conf)
        with pytest.raises(DrpcError, match="a bad word"):
            run.call("f", "a bad word")
        assert run.call("f", "a word") == "2"


def test_a_bolt_that_keeps_a_tuple_beyond_its_batch_is_named() -> None:
    class Keeping(BasicBolt):
        outputs = ("id", "word")

        def prepare(self, conf: Any, context: Any, collector: Any) -> None:
            self.kept: list[Any] = []

        def execute(self, tup: Tuple) -> None:
            for id in self.kept:
                self.emit([id, "late"])
            self.kept = [tup.id]

    builder = LinearDrpcBuilder("f")
    builder.add_bolt(Keeping())
    builder.add_bolt(Gather()).global_grouping()
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        assert run.call("f", "a") == "0"
        with pytest.raises(ComponentError, match=r"'bolt-1'.* has kept it beyond its batch"):
            run.call("f", "b")


def test_what_all_requests_share_must_not_change() -> None:
    class Sharing(Gather):
        def __init__(self) -> None:
            self.words: list[str] = []

        def execute(self, tup: Tuple) -> None:
            self.words.append(tup.word)

    with TestCluster() as cluster:
        run = cluster.submit_topology("t", gathering(gather=Sharing()))
        with pytest.raises(UnsavableAttributeError, match="'words' is shared by all requests"):
            run.call("f", "a")


def test_results_that_are_no_text_are_json_and_those_that_are_none_fail() -> None:
    class Odd(BasicBolt):
        outputs = ("id", "result")

        def execute(self, tup: Tuple) -> None:
            results: dict[str, Any] = {"list": [1, "a"], "none": None, "set": {1}}
            self.emit([tup.id, results.get(tup.args, "x" * (LARGEST + 1))])

    builder = LinearDrpcBuilder("f")
    builder.add_bolt(Odd())
    with TestCluster() as cluster:
        run = cluster.submit_topology("t", builder.create_topology())
        assert run.call("f", "list") == '[1, "a"]'
        assert run.call("f", "none") == "null"
        for args, words in (("set", "as JSON"), ("large", "is the most")):
            with pytest.raises(DrpcError, match=words):
                run.call("f", args)


def test_a_request_that_is_too_large_is_refused_at_once() -> None:
    calls = Calls(["f"])
    with pytest.raises(DrpcError) as raised:
        calls.call("f", "ä" * LARGEST, 0)
    assert raised.value.code == "TOO_LARGE"


def test_more_calls_than_may_wait_are_refused() -> None:
    calls = Calls(["f"], most_waiting=2)
    for _ in range(2):
        calls.call("f", "", 0)
    with pytest.raises(DrpcError) as raised:
        calls.call("f", "", 0)
    assert raised.value.code == "TOO_MANY"
    assert calls.figures.failed == {"TOO_MANY": 1}


def test_a_call_goes_to_the_task_with_the_fewest_open_ones() -> None:
    calls = Calls()
    tasks = [Holder("c", "f", number) for number in range(3)]
    for holder in tasks:
        calls.attach(holder, 0, 0)
        calls.grant(holder, 10)
    for number in range(9):
        calls.call("f", str(number), 0)
    assert [len(calls.take(holder, 0)) for holder in tasks] == [3, 3, 3]


def taken_call(*, gathers: bool = False) -> tuple[Calls, Holder, str]:
    """Return a call of 60 s that a task has taken at the time 0."""
    calls, holder = Calls(["f"]), Holder("c", "f", 0)
    calls.attach(holder, 0, 0, gathers=gathers)
    calls.grant(holder, 1)
    id = calls.call("f", "", 0)
    assert len(calls.take(holder, 0)) == 1
    return calls, holder, id


def ends_at(calls: Calls, now: float) -> list[str]:
    """Return the codes of the calls that end at a time, "" for a result."""
    calls.expire(now)
    return [end.code for _, end in calls.take_ends()]


def test_no_answer_is_missed_while_the_task_is_away() -> None:
    calls, holder, id = taken_call()
    calls.done(id, 1)
    calls.detach(holder)
    assert calls.next_due() == 60
    assert ends_at(calls, 40) == []
    calls.attach(holder, 1, 40)  # whoever has the answer has been away as well
    assert ends_at(calls, 44) == []
    assert calls.next_due() == 45
    assert ends_at(calls, 45) == ["FAILED_REQUEST"]


def test_a_task_that_was_away_settles_its_requests_anew() -> None:
    calls, holder, id = taken_call()
    parts = ("args", SETTLED)
    for part in parts:
        calls.done(id, 1, part, parts)
    calls.detach(holder)
    calls.attach(holder, 1, 10)
    assert ends_at(calls, 40) == []
    calls.done(id, 40, SETTLED, parts)
    assert ends_at(calls, 45) == ["FAILED_REQUEST"]


def test_no_answer_is_missed_before_the_request_is_settled() -> None:
    calls, _, id = taken_call()
    parts = ("args", SETTLED)
    calls.done(id, 1, "args", parts)
    assert ends_at(calls, 30) == []
    calls.done(id, 30, SETTLED, parts)
    assert ends_at(calls, 34) == []
    assert ends_at(calls, 35) == ["FAILED_REQUEST"]


def test_an_answer_that_waits_for_the_request_is_given_before_it_is_settled() -> None:
    calls, _, id = taken_call(gathers=True)
    assert calls.answer(id, "all", 1)
    assert ends_at(calls, 1) == []
    calls.done(id, 2, "args", ("args", SETTLED))
    assert ends_at(calls, 2) == [""]


def test_a_request_is_settled_when_the_batch_after_its_end_has_committed() -> None:
    spout, context = DrpcSpout("f"), SimpleNamespace(batch_id=7)
    line = Mock(number="n")
    spout.context, spout._lines = context, [line]  # type: ignore[assignment]
    spout._parts, spout.unsettled = ("args",), []
    spout._is_rebuilt = spout._settles_anew = False
    spout.ack(("args", "n.1"))
    line.done.assert_called_once_with("n.1", "args", ("args", SETTLED))
    spout.committed(6)
    assert line.done.call_count == 1
    spout.committed(7)
    spout.committed(8)
    assert line.done.call_args_list[1:] == [call("n.1", SETTLED, ("args", SETTLED))]
    spout.ack(("args", "n.2"))
    spout.restored()
    spout.committed(7)  # of the instance before; another slot may still be on its way back
    assert line.done.call_count == 3
    spout.committed(8)
    assert line.done.call_args == call("n.2", SETTLED, ("args", SETTLED))
    assert spout.unsettled == []


def spout_at(desk: Desk, holder: Holder, saved: list[tuple[int, str]] | None) -> DrpcSpout:
    """Return a spout whose task attaches anew: a rebuilt one with what its predecessor saved."""
    spout = DrpcSpout("f")
    spout.context = SimpleNamespace(batch_id=7)  # type: ignore[assignment]
    spout._parts, spout.unsettled = ("args",), saved or []
    spout._is_rebuilt = spout._settles_anew = False
    spout._lines = [desk.line(holder, 2, False, Mock())]
    if saved is not None:
        spout.restored()
    return spout


def test_a_request_that_was_settled_before_its_slot_died_is_settled_anew() -> None:
    now = 0.0
    desk, holder = Desk(lambda: now, ["f"]), Holder("c", "f", 0)
    spout = spout_at(desk, holder, None)
    assert spout._lines is not None
    line = spout._lines[0]
    line.grant(2)
    settled, running = desk.begin("f", "", 60), desk.begin("f", "", 60)
    assert len(line.take()) == 2
    spout.ack(("args", settled))
    spout.committed(7)
    assert desk.next_due() == 5
    now = 2.0
    line.close()
    spout = spout_at(desk, holder, list(spout.unsettled))
    spout.committed(7)  # of its predecessor
    assert desk.next_due() == 60
    context = Mock(batch_id=8)
    spout.context, spout.room = context, Mock(return_value=0)  # type: ignore[method-assign]
    spout.next_tuple()
    context.end_batch.assert_called_once_with()
    spout.committed(8)
    assert desk.next_due() == 7
    spout.next_tuple()
    context.end_batch.assert_called_once_with()
    now = 7.0
    end = desk.take_end(settled)
    assert end is not None
    assert "no result" in end.reason
    assert desk.take_end(running) is None
    assert desk.next_due() == 60


def test_an_instance_that_is_rebuilt_passes_on_what_it_hears_first(monkeypatch: Any) -> None:
    """A batch brings the acks of the one before, and asks for tuples only then."""
    desk, holder = Desk(lambda: 0.0, ["f"]), Holder("c", "f", 0)
    spout = spout_at(desk, holder, None)
    assert spout._lines is not None
    line = spout._lines[0]
    line.grant(1)
    id = desk.begin("f", "", 60)
    assert len(line.take()) == 1
    line.close()
    unnamed = Mock(wraps=desk.line(holder, 1, False, Mock()), number="")
    monkeypatch.setattr("topo.drpc.spout.lines_of", Mock(return_value=[unnamed]))
    spout = DrpcSpout("f")
    spout.context = Mock(batch_id=8)
    spout.context.conf = {"topology.acker.executors": 1}
    spout.context.this_targets = {}
    spout.open(spout.context.conf, spout.context, Mock())
    spout.restored()
    spout.ack(("args", id))
    spout.committed(7)  # of its predecessor
    spout.committed(8)
    assert desk.next_due() == 5
    spout.close()


class Thrice(BasicBolt):
    outputs = ("id", "result")

    def execute(self, tup: Tuple) -> None:
        for number in range(3):
            self.emit([tup.id, str(number)])


@pytest.mark.parametrize("answer", ["committed", "at_once"])
@pytest.mark.parametrize("is_remote", [False, True])
def test_answers_are_counted_and_not_results(answer: str, is_remote: bool, tmp_path: Path) -> None:
    """Of several results of a call, the first is its answer."""
    token = tmp_path / "token"
    token.write_text(Computing.token)
    builder = LinearDrpcBuilder("g", answer=answer)
    builder.add_bolt(Thrice())
    with Computing(lambda function, args: None, []) as computing, TestCluster() as cluster:
        address = computing.server.address
        conf = {"topology.drpc.addresses": [address], "topology.drpc.token.file": str(token)}
        topology = builder.create_topology()
        run = cluster.submit_topology("t", topology, conf if is_remote else {})
        if is_remote:
            moved_until(cluster, lambda: "g" in computing.server._calls.functions)
        asked = 0
        with DrpcClient(address, token=computing.token) as client:

            def ask() -> str:
                if not is_remote:
                    return run.call("g", "a")
                (request,) = _requests("g", "a")
                result = client._call.future(request, timeout=30, metadata=client._metadata)
                moved_until(cluster, result.done)
                return str(result.result().result)

            def answered() -> int:
                return run.stats().components["results"].counters.get("answered", 0)

            while answered() < 2:  # the count of a batch comes with that of the next one
                assert asked < 100
                assert ask() == "0"
                asked += 1
        assert answered() <= asked
        run.kill()


# -- sockets --------------------------------------------------------------------------------------


@pytest.fixture
def computing() -> Iterator[Computing]:
    with Computing(lambda function, args: f"{args}!", ["f"]) as server:
        yield server


def test_a_task_that_comes_back_gets_what_it_has_not_committed_again(computing: Computing) -> None:
    server = computing.server
    number = server._calls.number
    holder_line = computing.line("g")
    holder_line.grant(10)
    with DrpcClient(server.address, token=computing.token) as client:
        while "g" not in server._calls.functions:
            computing._woken.wait(0.01)
        results = [client._call.future(request, timeout=30, metadata=client._metadata)
                   for request in _requests("g", "abc")]  # fmt: skip
        taken: list[Any] = []
        while len(taken) < 3:
            taken += holder_line.take()
        first = taken[0]
        holder_line.close()
        again = computing.line("g", taken={number: first.serial})
        again.grant(10)
        repeated: list[Any] = []
        while len(repeated) < 2:
            repeated += again.take()
        assert [request.serial for request in repeated] == [2, 3]
        assert [request.id for request in repeated] == [request.id for request in taken[1:]]
        computing._answers.deliver([(request.id, request.args) for request in taken])
        assert sorted(future.result().result for future in results) == ["a", "b", "c"]
        again.close()


def test_a_task_that_comes_back_tells_a_server_that_it_has_settled(computing: Computing) -> None:
    calls, line = computing.server._calls, computing.line("g")

    def await_due(is_so: Callable[[float], bool]) -> float:
        while not is_so(due := calls.next_due() or 0.0):
            computing._woken.wait(0.01)
        return due

    line.grant(10)
    with DrpcClient(computing.server.address, token=computing.token) as client:
        while "g" not in calls.functions:
            computing._woken.wait(0.01)
        (request,) = _requests("g", "a")
        result = client._call.future(request, timeout=60, metadata=client._metadata)
        taken: list[Any] = []
        while not taken:
            taken += line.take()
        deadline = await_due(bool)
        for part in ("args", SETTLED):
            line.done(taken[0].id, part, ("args", SETTLED))
        await_due(lambda due: due < deadline)
        line.close()
        await_due(lambda due: due == deadline)
        again = computing.line("g", taken={line.number: taken[0].serial})
        again.settle_anew()
        await_due(lambda due: due < deadline)
        result.cancel()
        again.close()


def test_an_instance_that_is_left_behind_leaves_no_line(tmp_path: Path) -> None:
    """Two lines of one task would end each other's streams for ever."""
    token = tmp_path / "token"
    token.write_text(Computing.token)
    linear = LinearDrpcBuilder("g")
    linear.add_bolt(Echo())
    others = _lines()  # of other tests
    with Computing(lambda function, args: None, []) as computing, TestCluster() as cluster:
        address = computing.server.address
        conf = {"topology.drpc.addresses": [address], "topology.drpc.token.file": str(token)}
        run = cluster.submit_topology("t", linear.create_topology(), conf)
        moved_until(cluster, lambda: "g" in computing.server._calls.functions)
        with DrpcClient(address, token=computing.token) as client:
            for text in "abcd":
                run.restart()
                (request,) = _requests("g", text)
                result = client._call.future(request, timeout=30, metadata=client._metadata)
                moved_until(cluster, result.done)
                assert result.result().result == text
                assert len(_lines() - others) == 1
        run.kill()
        assert _lines() <= others


def _lines() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "topo-drpc-line"}


def _requests(function: str, texts: str) -> list[Any]:
    from topo._pb import drpc_pb2 as pb

    return [pb.CallRequest(function=function, args=text) for text in texts]


def test_a_wrong_token_and_a_server_that_is_none(computing: Computing) -> None:
    with DrpcClient(computing.server.address, token="wrong") as client:
        with pytest.raises(DrpcError) as raised:
            client.call("f", "x", 10)
        assert raised.value.code == "NOT_ALLOWED"
    with DrpcClient("127.0.0.1:1", token="t") as client:
        with pytest.raises(DrpcError) as raised:
            client.call("f", "x", 10)
        assert raised.value.code == "UNREACHABLE"
        said = "no server of calls answers at 127.0.0.1:1: connection refused"
        assert raised.value.message.removesuffix(" (111)") == said  # as older gRPC has it
        assert "`topo drpc` starts one" in pickle.loads(pickle.dumps(raised.value)).hint


def test_half_a_call_by_http_is_not_waited_for_for_ever(
    computing: Computing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "HEAD_SECS", 0.1)
    monkeypatch.setattr(connections, "BODY_SECS", 0.1)
    head = b"POST /drpc/double HTTP/1.1\r\nHost: localhost\r\n"
    body = b"Authorization: Bearer %s\r\nContent-Length: 9\r\n\r\n1" % computing.token.encode()
    for said in (head, head + body):
        with socket.create_connection(split_address(computing.http_address)) as slow:
            slow.settimeout(60)
            slow.sendall(said)
            while slow.recv(4096):
                pass


def test_at_loop_back_no_call_comes_by_another_hosts_name(computing: Computing) -> None:
    headers = {"Host": "evil.example", "Authorization": f"Bearer {computing.token}"}
    asked = httpx.get(f"http://{computing.http_address}/drpc/double/1", headers=headers)
    assert asked.status_code == 421


def test_a_token_of_another_function_serves_nothing() -> None:
    acl = {"functions": {"f": {"call": ["caller"], "serve": "server"}}}
    access = Access.of(Computing.token, acl)
    with Computing(lambda function, args: args, ["f"], access=access) as computing:
        with DrpcClient(computing.server.address, token="caller") as client:
            with pytest.raises(DrpcError) as raised:
                client.call("f", "x", 0.5)
            assert raised.value.code == "SERVER_TIMEOUT"  # its task's token is not that of f
        with DrpcClient(computing.server.address, token=Computing.token) as client:
            with pytest.raises(DrpcError) as raised:
                client.call("f", "x", 10)
            assert raised.value.code == "NOT_ALLOWED"


def test_many_callers_at_once_get_their_own_answers(computing: Computing) -> None:
    with DrpcClient(computing.server.address, token=computing.token) as client:
        texts = [str(number) for number in range(200)]
        futures = [client._call.future(request, timeout=30, metadata=client._metadata)
                   for text in texts for request in _requests("f", [text])]  # type: ignore[arg-type]  # fmt: skip
        assert [future.result().result for future in futures] == [f"{text}!" for text in texts]
    assert computing.server.figures.answered == 200
