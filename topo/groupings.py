"""Custom groupings: the class that users subclass to choose tasks themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from topo.context import TopologyContext


class CustomStreamGrouping:
    """A rule that chooses the tasks of every tuple of a stream; for `custom_grouping`.

    There is one instance per producing task, pickled with the topology. Changed attributes are not
    saved: choose by the values, or accept that a restart begins anew.
    """

    def prepare(
        self, context: TopologyContext, stream: tuple[str, str], target_tasks: Sequence[int]
    ) -> None:
        """Get `stream`, a pair (component, stream), and the reading bolt's task ids."""

    def choose_tasks(self, source_task: int, values: list[Any]) -> list[int]:
        """Return the ids of the tasks that get this tuple: any number of the `target_tasks`."""
        raise NotImplementedError
