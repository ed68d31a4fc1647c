"""Another number of slots for a log of epochs, or of tasks of a component.

Nothing in the log is filed by slot: records are those of tasks, and the ledger knows spouts' tasks.
So a run with other slots reads the same log, and the plan beside it is all that has to change. The
one exception is which levels of which slots have had their last tick. Those of the new plan are
written before the plan is, and those of no plan are removed when a log is opened: a crash between
leaves some too many, and never one too few. So it is with the tasks of a component that has got
another number of them: the new ones have ids that none had before, and are written first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from topo.engine.spark.plan import Plan
from topo.engine.spark.realtime.epochs import Committed, EpochRecord, Key
from topo.engine.spark.realtime.records import read_values
from topo.engine.spark.realtime.store import EpochStore
from topo.runtime.dealing import Dealer, Resize, deal_all
from topo.tracking.ids import Updates

_PREFIX = "last ticked/"


def last_tick_key(level: int, slot: int) -> Key:
    """Return the key of the record that a level of a slot has had its last tick."""
    return 0, f"{_PREFIX}{level}/{slot}"


def copy_last_ticks(
    store: EpochStore, committed: Committed, before: Mapping[str, Any], plan: Plan
) -> None:
    """Have the slots of a new plan begin with a last tick if all those of the one before had it."""
    ticked = ticked_keys(store)
    components = before["components"].values()
    places = {(each["level"], slot) for each in components for slot in each["slots"]}
    if {last_tick_key(*place) for place in places} <= ticked:
        _append(store, committed, dict.fromkeys(last_tick_keys(plan) - ticked, b"\x01"), ())


def drop_stale_ticks(store: EpochStore, committed: Committed, plan: Plan) -> None:
    """Remove the last ticks of slots that the plan does not have."""
    if stale := ticked_keys(store) - last_tick_keys(plan):
        _append(store, committed, {}, stale)


def deal_tasks(
    store: EpochStore,
    committed: Committed,
    resized: Sequence[Resize],
    dealing: Mapping[str, Dealer],
) -> None:
    """Write what the new tasks of some components begin with, under their ids.

    The tasks before keep what they have until the plan is that of the new ones. A try that was cut
    short may have left something under the new ids, which goes.
    """
    if not resized:
        return
    old = [task for each in resized for task in each.before]
    saved = read_values(store.directory, store.places(old))
    dealt = deal_all(dealing, resized, saved)
    puts = {(task, name): record for task, of in dealt.items() for name, record in of.items()}
    new = {task for each in resized for task in each.after}
    _append(store, committed, puts, store.places(new).keys() - puts.keys())


def drop_gone_tasks(store: EpochStore, committed: Committed, plan: Plan) -> None:
    """Remove what is saved for tasks that the plan does not have."""
    tasks = {0, *(task for placed in plan.components for task in placed.tasks)}
    if stale := store.places(store.tasks - tasks).keys():
        _append(store, committed, {}, stale)


def ticked_keys(store: EpochStore) -> set[Key]:
    """Return the keys of the last ticks that are in a log."""
    return {key for key in store.places({0}) if key[1].startswith(_PREFIX)}


def last_tick_keys(plan: Plan) -> set[Key]:
    """Return the keys of the last ticks of all slots that have tasks."""
    places = {plan.place_of(task) for placed in plan.components for task in placed.tasks}
    return {last_tick_key(*place) for place in places}


def _append(
    store: EpochStore, committed: Committed, puts: Mapping[Key, bytes], deletes: Collection[Key]
) -> None:
    record = EpochRecord(
        committed.epoch + 1, committed.clock, dict(puts), sorted(deletes), Updates(), {}
    )
    store.append(record, committed)
    committed.apply(record)
