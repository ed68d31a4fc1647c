"""`/metrics` of the pages: all topologies that are not over."""

from __future__ import annotations

from topo.manage.answers import errors_of, figures_of
from topo.manage.api import Management
from topo.metrics.prometheus import Exposed
from topo.metrics.prometheus import exposition as exposition_of


def exposition(management: Management, accept: str, by_task: bool) -> tuple[bytes, str]:
    """Return the body and the content type of an answer to Prometheus."""
    return exposition_of(_exposed(management), accept, by_task=by_task)


def _exposed(management: Management) -> list[Exposed]:
    found = []
    for run in management.registry.runs(all_of_them=False):
        try:
            figures, _ = figures_of(run)
            restarts = run.supervision.restarts if run.supervision else 0
            found.append(Exposed(run.name, run.status, figures, errors_of(run), restarts))
        except Exception:  # a damaged entry must not hide the others
            continue
    return found
