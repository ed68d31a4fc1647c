"""The fewest and the most slots of a topology that scales by itself.

People write `topology.workers = {min = 2, max = 16}`. What runs a topology needs the number of the
moment under that key, which each step changes, and which a driver leaves to the next. So the limits
move to keys of their own where settings become those of a topology, and the number has its key for
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from topo.config.settings import Settings
from topo.errors import ConfigError

WORKERS, LEAST, MOST = (
    Settings.workers.key,
    Settings.workers_min.key,
    Settings.workers_max.key,
)


def with_range_apart(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in which the limits of slots have their own keys."""
    limits = values.get(WORKERS)
    if not isinstance(limits, Mapping):
        return dict(values)
    others = {key: value for key, value in values.items() if key != WORKERS}
    return {**others, LEAST: limits.get("min", 1), MOST: limits["max"]}


def replaced_by(values: Mapping[str, Any]) -> set[str]:
    """Return the keys of slots that a layer with these settings takes out of those before it.

    A number fixes the slots, whatever limits there were, and limits leave no number to begin with:
    it makes no difference whether a layer has them as one setting or apart.
    """
    if WORKERS in values:
        return {WORKERS, LEAST, MOST}
    return {WORKERS} if values.get(MOST) is not None else set()


def slot_range(conf: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the fewest and the most slots; None if the topology does not scale."""
    least, most = conf.get(LEAST), conf.get(MOST)
    if most is None:
        if least is not None and MOST not in conf:  # null says that it does not scale
            raise ConfigError(
                f"{LEAST} is {least}, and there is no {MOST}",
                hint=f"without the most it does not scale: {WORKERS} = {least}, or give {MOST}",
            )
        return None
    if (least or 1) > most:
        raise ConfigError(
            f"{LEAST} is {least}, and {MOST} is {most}",
            hint=f'{WORKERS} = {{"min": {most}, "max": {least}}}',
        )
    return least or 1, most


def fixed_slots(conf: Mapping[str, Any], command: str) -> list[str]:
    """Return in words that a command does not scale, if the settings ask for it."""
    if slot_range(conf) is None:
        return []
    slots = with_first_slots(conf)[WORKERS]
    return [f"{command} keeps its {slots} slots: what topo submit runs scales by itself"]


def with_first_slots(conf: Mapping[str, Any], present: int | None = None) -> dict[str, Any]:
    """Return settings with a number of slots to begin with, if there are limits and no number.

    `present` is the number of a checkpoint that is resumed.
    """
    limits = slot_range(conf)
    if limits is None or conf.get(WORKERS) is not None:
        return dict(conf)
    least, most = limits
    return {**conf, WORKERS: min(max(present or least, least), most)}
