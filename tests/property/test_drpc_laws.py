"""Each call ends exactly once, whatever comes in which order, and no lease moves."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from topo.drpc.calls import Calls, Holder
from topo.drpc.errors import DrpcError

HOLDERS = [Holder(checkpoint, "f", task) for checkpoint in "ab" for task in (0, 1)]
holders = st.sampled_from(HOLDERS)
places = st.integers(0, 20)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("call"), st.integers(1, 9)),
        st.tuples(st.just("grant"), holders, st.integers(0, 3)),
        st.tuples(st.just("take"), holders),
        st.tuples(st.just("commit"), holders),
        st.tuples(st.just("roll back"), holders),
        st.tuples(st.just("leave"), holders),
        st.tuples(st.just("answer"), places),
        st.tuples(st.just("fail"), places),
        st.tuples(st.just("done"), places),
        st.tuples(st.just("gone"), places),
        st.tuples(st.just("advance"), st.integers(1, 4)),
    ),
    max_size=60,
)


class Task:
    """A task as it should see its requests: what it has emitted, and what of that is committed."""

    def __init__(self) -> None:
        self.emitted: dict[int, str] = {}
        self.committed = 0


@given(steps=steps, gathers=st.booleans())
@examples(300)
def test_each_call_ends_once(steps: Any, gathers: bool) -> None:
    calls, now = Calls(["f"], most_waiting=5), 0.0
    tasks: dict[Holder, Task] = {}
    ids: list[str] = []
    ends: dict[str, Any] = {}
    owners: dict[str, Holder] = {}
    left: set[str] = set()

    def attach(holder: Holder) -> None:
        task = tasks.setdefault(holder, Task())
        task.emitted = {n: id for n, id in task.emitted.items() if n <= task.committed}
        calls.attach(holder, task.committed, now, gathers=gathers)

    for kind, *arguments in steps:
        match kind, arguments:
            case "call", [secs]:
                with suppress(DrpcError):
                    ids.append(calls.call("f", str(len(ids)), now, secs))
            case "advance", [secs]:
                now += secs
                calls.expire(now)
            case (("grant" | "take" | "commit" | "roll back" | "leave"), [holder, *more]):
                if holder not in tasks or kind == "roll back":
                    attach(holder)
                task = tasks[holder]
                if kind == "grant":
                    calls.grant(holder, more[0])
                elif kind == "take":
                    for request in calls.take(holder, now):
                        assert request.left_secs > 0
                        assert request.serial not in task.emitted
                        assert owners.setdefault(request.id, holder) == holder, "a lease moved"
                        assert request.id not in ends
                        task.emitted[request.serial] = request.id
                elif kind == "commit":
                    task.committed = max(task.emitted, default=0)
                elif kind == "leave":
                    calls.detach(holder)
            case _, [place]:
                if place < len(ids):
                    id = ids[place]
                    if kind == "answer":
                        calls.answer(id, f"of {id}", now)
                    elif kind == "fail":
                        calls.fail(id, "failed")
                    elif kind == "done":
                        calls.done(id, now)
                    else:
                        calls.gone(id)
                        left.add(id)
        for id, end in calls.take_ends():
            assert id not in ends
            assert end.result in (None, f"of {id}")
            ends[id] = end
    calls.expire(now + 100)
    for id, end in calls.take_ends():
        assert id not in ends
        ends[id] = end
    assert set(ids) - left <= set(ends)
    figures = calls.figures
    assert figures.open == figures.waiting == 0
    assert figures.answered == sum(end.result is not None for end in ends.values())
