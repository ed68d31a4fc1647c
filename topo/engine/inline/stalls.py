"""The reason why a run in this process cannot advance although it should."""

from __future__ import annotations

from topo.runtime.slot import SlotTasks
from topo.runtime.spout_task import Pause
from topo.tracking.ledger import Ledger


def stall_of(host: SlotTasks | None, ledger: Ledger, pause: Pause) -> str:
    """Return why an active run stands still, or ""."""
    if pause.reason:
        return pause.reason
    if host is None:
        return ""
    if host.stalls:
        return host.stalls[0]
    times_out = ledger.timeout_secs is not None
    if times_out or any(len(ledger.verdicts(spout.id, spout.cursor)) for spout in host.spouts):
        return ""
    return next(
        (
            f"spout {spout.component_id!r} at its pending limit ({spout.pending_count}), "
            "nothing in flight"
            for spout in host.spouts
            if spout.at_limit
        ),
        "",
    )
