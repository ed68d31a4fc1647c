"""What users write to deal tuples over tasks themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topo.context import TopologyContext


class CustomStreamGrouping:
    """Chooses the tasks of every tuple of a stream; given to `custom_grouping`.

    One instance a producing task; pickled with the topology. Attributes it changes are not saved:
    choose by the values, or accept that a restart begins again.
    """

    def prepare(
        self, context: TopologyContext, stream: tuple[str, str], target_tasks: Sequence[int]
    ) -> None:
        """`stream` is (component, stream); `target_tasks` the reading bolt's task ids."""

    def choose_tasks(self, source_task: int, values: list[Any]) -> list[int]:
        """The ids of the tasks that get this tuple: a subset of `target_tasks`, in any number."""
        raise NotImplementedError
