"""The bolts of streams as a plain `execute`, tuple by tuple: what their loops are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from topo.operators.codegen import functions
from topo.storage.saving import with_one_nan
from topo.streams.compile.chain_code import ChainCode
from topo.streams.compile.chains import ChainBolt
from topo.streams.totals import RunningBolt
from topo.traces import GENERATED
from topo.tuples import Tuple

_MISSING = object()


class EmitsRows:
    """The text that emits rows by calls of `emit`."""

    def __init__(self, emit: Any) -> None:
        self.names = {"emit": emit}

    def emit(self, stream: str, values: Sequence[str]) -> list[str]:
        return [f"emit([{', '.join(values)}], stream={stream!r})"]

    def emit_each(self, stream: str, values: Sequence[str], one: str, each: str) -> str | None:
        return None


def _as_topos(function: Any) -> Any:
    """Let tracebacks leave a function out, as they do with topo's own."""
    function.__code__ = function.__code__.replace(co_filename=GENERATED)
    return function


@_as_topos
def execute_chain(bolt: ChainBolt, tup: Tuple) -> None:
    """Do the work of a chain on one tuple; each element is a row of its own."""
    code = ChainCode(bolt.plan, bolt.gathered, EmitsRows(bolt.emit))
    text = code.text()
    reads = [f"    f{place} = tup[{place}]" for place in text.reads]
    lines = ["def run(tup):", *reads, *(f"    {line}" for line in text.lines)]
    work = functions("\n".join(lines), text.names)["run"]
    try:
        work(tup)
    except Exception as error:
        trace: Any = error.__traceback__
        bolt.code = code
        bolt.failed(error, trace.tb_next.tb_lineno - 2 - len(reads))
        raise


@_as_topos
def execute_running(bolt: RunningBolt, tup: Tuple) -> None:
    """Take one value into a running aggregate, and emit its result."""
    key, value, combiner = with_one_nan(tup[0]), tup[1], bolt.combiner
    if value is None and not bolt.takes_none:
        return
    before = bolt.state.get(key, _MISSING)
    if before is _MISSING:
        acc, latest = combiner.init(), None
    else:
        acc, latest = before if bolt.timed else (before, None)
    acc = combiner.add(acc, value)
    if bolt.drops and acc is None:
        bolt.state.pop(key, None)
        return
    if not bolt.timed:
        bolt.state[key] = acc
        bolt.emit([key, combiner.result(acc)])
        return
    latest = tup[2] if latest is None else max(latest, tup[2])
    bolt.state[key] = acc, latest
    bolt.emit([key, combiner.result(acc), latest])
