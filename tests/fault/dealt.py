"""The topology that notices what is lost or doubled, of bolts that can have other numbers of tasks.

    python -m tests.fault.dealt DIRECTORY MASTER

What `Count` keeps is by key here: keyed state under keys with the input's in them, and a keyed
attribute. Windows are dealt by their key; what holds tuples, and spouts, keep their tasks.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.fault.exactly_once import Count, run_job, topology, write
from topo import Tuple


class Chains(Count):
    """Counts, in keyed state whose keys have the input's as their last part."""

    keyed = ("totals",)

    def prepare(self, conf: Any, context: Any, collector: Any) -> None:
        super().prepare(conf, context, collector)
        self.counted_now: list[Any] = []

    def input_key(self, key: Any) -> Any:
        return key if isinstance(key, str) else key[-1]  # of `totals`, and of the state

    def execute(self, tup: Tuple) -> None:
        chain = ("chain", tup.source, tup.key)
        before = self.state.get(chain, 0)
        if tup.number != before + 1:
            what = "lost" if tup.number > before + 1 else "doubled"
            raise AssertionError(f"{what}: {tup.key!r} {before} and then {tup.number}")
        self.state[chain] = tup.number
        self.totals[tup.key] = self.totals.get(tup.key, 0) + 1
        self.counted_now.append(("at", tup.offset, tup.key))

    def cleanup(self) -> None:
        chains = {f"{k[1]} {k[2]}": n for k, n in self.state.items() if k[0] == "chain"}
        counted = {k[1]: batch for k, batch in self.state.items() if k[0] == "at"}
        known = {"totals": self.totals, "chains": chains, "counted": counted}
        write(self.directory, f"count-{self.context.this_task_id}", known)


if __name__ == "__main__":
    run_job(partial(topology, count=Chains))
