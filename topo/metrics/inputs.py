"""The figures of each stream that a bolt reads, out of the documents, where they are by key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topo.metrics.keys import name_and_labels


@dataclass(frozen=True)
class InputFigures:
    """How many tuples of a stream a bolt has executed, and how long one took."""

    component: str
    stream: str
    executed: int
    execute_ms: float | None
    process_ms: float | None


def inputs_of(figures: Mapping[str, Any]) -> list[InputFigures]:
    """Return the figures of each input of a component; those of earlier drivers had none."""
    execute = figures.get("execute_ms_by_input") or {}
    process = figures.get("process_ms_by_input") or {}
    inputs = []
    for key, executed in sorted((figures.get("executed_by_input") or {}).items()):
        _, labels = name_and_labels(key)
        if {"component", "stream"} <= labels.keys():
            source, stream = labels["component"], labels["stream"]
            inputs.append(
                InputFigures(source, stream, executed, execute.get(key), process.get(key))
            )
    return inputs
