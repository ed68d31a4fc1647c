"""The table of the API's endpoints: each reads its parameters and calls the management API."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from topo.logs.reader import LEVELS, Wanted
from topo.logs.requests import (
    LEVEL_SECS,
    MOST_LEVEL_SECS,
    MOST_PER_SEC,
    MOST_SAMPLE_SECS,
    PER_SEC,
    SAMPLE_SECS,
)
from topo.logs.search import InvalidPattern, Search
from topo.manage.answers import WINDOWS
from topo.manage.api import Management
from topo.manage.built import STATES, submit_built
from topo.manage.control import NUMBERS, PAGING
from topo.manage.savepoints import MOST_ENTRIES
from topo.manage.stacks import MOST_SECS
from topo.manage.uploaded import submit_file
from topo.manage.views import (
    BatchView,
    Change,
    ClusterView,
    ErrorView,
    HistoryView,
    LogRequestsView,
    LogsView,
    SavepointList,
    SavepointView,
    ScaleView,
    SettingView,
    StacksView,
    StateView,
    TopologyList,
    TopologyPlan,
    TopologyView,
    WorkersView,
)
from topo.serving.access import Refused
from topo.serving.endpoints import Endpoint, Parameter

_READ = {
    400: "A parameter is invalid.",
    401: "There is no token, or an unknown one.",
    404: "There is no such topology.",
    421: "The pages are not served under this host name.",
    503: "The registry cannot be read, or a driver does not answer.",
}
_CHANGE = {
    **_READ,
    403: "The sender may not change anything.",
    409: "The topology is in a state in which this cannot be done.",
}
_NAME = Parameter("name", str, "A topology's name, or the id of a run.", place="path")
_WINDOW = Parameter("window", str, "The time the figures are of.", "all", tuple(WINDOWS))
_MOST_SUBMITTED = 64 << 20
_COMPONENT = Parameter("component", str, "Only of this component.")
_LOGS = (
    _COMPONENT,
    Parameter("level", str, "Of this level or above.", "INFO", LEVELS),
    Parameter("task", int, "Only of this task."),
    Parameter("grep", str, "A regular expression that the message matches.", form="regex"),
    Parameter("since_secs", float, "Not older than this."),
    Parameter("count", int, "The last so many lines.", 200, least=0, most=5000),
)


@dataclass(frozen=True)
class SessionView:
    """The user of the pages, and their permissions."""

    role: str
    user: str
    csrf: str
    """What a change has to carry in X-Topo-CSRF, if it is sent with the session's cookie."""
    read_only: bool
    allows_submit: bool
    """True if whoever operates may submit topologies here."""
    version: str
    environment: str


def log_lines_wanted(
    component: str | None,
    level: str,
    task: int | None,
    grep: str | None,
    since_secs: float | None,
) -> Wanted:
    """Return which log lines a request asks for."""
    try:
        search = Search(grep) if grep else None
    except InvalidPattern as error:
        raise Refused(400, f"grep is no regular expression: {error.message}") from None
    since = ""
    if since_secs is not None:
        since = datetime.fromtimestamp(max(0.0, time.time() - since_secs), UTC).isoformat()
    return Wanted(level, since, component, task, search)


def _logs(management: Management, name: str, count: int, **wanted: Any) -> LogsView:
    return management.logs(name, log_lines_wanted(**wanted), count)


def _without_commands(workers: WorkersView) -> WorkersView:
    """Return the view without command lines, which may hold passwords."""
    return replace(workers, processes=[replace(each, command="") for each in workers.processes])


def endpoints(management: Management, *, allow_submit: bool = False) -> list[Endpoint]:
    """Return every endpoint but those that hold a connection open."""
    table = _endpoints(management)
    return [*table, *_submissions(management)] if allow_submit else table


def _submissions(management: Management) -> list[Endpoint]:
    """Return the endpoints that start a topology: who may call them runs code on this machine."""
    begin = (
        Parameter("conf", dict, "Its settings.", place="body"),
        Parameter("master", str, "Spark's master.", "local[*]", place="body"),
        Parameter("active", bool, "With its spouts running.", True, place="body"),
        Parameter(
            "state",
            str,
            "What to do with the state that this name has left.",
            "refuse",
            tuple(STATES),
            place="body",
        ),
    )
    built = Endpoint(
        "POST",
        "/api/topologies",
        "submit",
        "Submit a built topology: `topo submit`. Only if the server was started with "
        "`--allow-submit`.",
        Change,
        partial(submit_built, management.registry),
        status=202,
        most_bytes=_MOST_SUBMITTED,
        refusals=_CHANGE | {413: "The topology is too large."},
        body=(
            Parameter("name", str, "What to call it.", place="body", is_required=True),
            Parameter(
                "topology",
                str,
                "`Topology.to_bytes()`, in base64.",
                place="body",
                longest=_MOST_SUBMITTED,
                is_required=True,
            ),
            Parameter(
                "directory",
                str,
                "A directory of this machine with the modules it imports.",
                place="body",
            ),
            *begin,
        ),
    )
    file = Endpoint(
        "POST",
        "/api/submissions",
        "submit_file",
        "Submit the topology in a file: `topo submit`. Only if the server was started with "
        "`--allow-submit`.",
        Change,
        partial(submit_file, management.registry),
        status=202,
        most_bytes=_MOST_SUBMITTED,
        refusals=_CHANGE | {413: "The file is too large."},
        body=(
            Parameter(
                "file",
                str,
                "Its name: of a .py, a .yaml, or a .zip with all that they import.",
                place="body",
                is_required=True,
            ),
            Parameter(
                "content",
                str,
                "What is in it, in base64.",
                place="body",
                longest=_MOST_SUBMITTED,
                is_required=True,
            ),
            Parameter(
                "target",
                str,
                "Which topology of it, as `topo submit` takes it: FILE or FILE.py:ATTRIBUTE.",
                "",
                place="body",
            ),
            Parameter(
                "name",
                str,
                "What to call it; default: topology.name, or the file's name.",
                "",
                place="body",
            ),
            Parameter("args", str, "Arguments of its code, as in a shell.", "", place="body"),
            *begin,
        ),
    )
    return [built, file]


def _endpoints(management: Management) -> list[Endpoint]:

    def of_one(method: str, tail: str, **more: Any) -> Endpoint:
        parameters = (_NAME, *more.pop("parameters", ()))
        refusals = _READ if method == "GET" else _CHANGE
        return Endpoint(
            method,
            f"/api/topologies/{{name}}{tail}",
            parameters=parameters,
            refusals=refusals,
            **more,
        )

    return [
        Endpoint(
            "GET",
            "/api/topologies",
            "topologies",
            "List the topologies: `topo list --json` and more.",
            TopologyList,
            lambda all: management.topologies(everything=all),
            (Parameter("all", bool, "Those that are over, too.", True),),
            refusals=_READ,
        ),
        Endpoint(
            "GET",
            "/api/cluster",
            "cluster",
            "Show hosts and the slots on them, free places, executors of clusters, and owners.",
            ClusterView,
            management.cluster,
            refusals=_READ,
        ),
        of_one(
            "GET",
            "",
            name="topology",
            summary="Show a topology with its figures: `topo stats --json`.",
            answer=TopologyView,
            handle=management.topology,
            is_shared=True,
            parameters=(_WINDOW,),
        ),
        of_one(
            "GET",
            "/plan",
            name="plan",
            summary="Show levels, slots, streams and groupings.",
            answer=TopologyPlan,
            handle=management.plan,
        ),
        of_one(
            "GET",
            "/history",
            name="history",
            summary="Show the figures over time.",
            answer=HistoryView,
            handle=management.history,
            is_shared=True,
            parameters=(Parameter("window", str, "How far back.", "10m", tuple(WINDOWS)),),
        ),
        of_one(
            "GET",
            "/batches",
            name="batches",
            summary="List the latest batches, the oldest first; some two thousand are kept.",
            answer=list[BatchView],
            handle=management.batches,
            is_shared=True,
            parameters=PAGING,
        ),
        of_one(
            "GET",
            "/errors",
            name="errors",
            summary="List the errors, the latest first: `topo errors --json`.",
            answer=list[ErrorView],
            handle=management.errors,
            is_shared=True,
            parameters=(
                _COMPONENT,
                Parameter("limit", int, "The latest so many.", 100, least=1, most=1000),
            ),
        ),
        of_one(
            "GET",
            "/logs",
            name="logs",
            summary="Show log lines: `topo logs --json`.",
            answer=LogsView,
            handle=lambda **given: _logs(management, **given),
            parameters=_LOGS,
        ),
        of_one(
            "GET",
            "/conf",
            name="conf",
            summary="List the settings with their origins; secrets are hidden.",
            answer=list[SettingView],
            handle=management.conf,
        ),
        of_one(
            "GET",
            "/workers",
            name="workers",
            summary="Show slots and processes; the role `view` sees no command lines.",
            answer=WorkersView,
            handle=management.workers,
            for_viewers=_without_commands,
        ),
        of_one(
            "POST",
            "/activate",
            name="activate",
            summary="Resume the spouts.",
            answer=Change,
            handle=management.activate,
            status=202,
        ),
        of_one(
            "POST",
            "/deactivate",
            name="deactivate",
            summary="Stop the spouts; what is in flight is still processed.",
            answer=Change,
            handle=management.deactivate,
            status=202,
        ),
        of_one(
            "GET",
            "/log-requests",
            name="log_requests",
            summary="Show the log levels and samples that are asked for at the moment.",
            answer=LogRequestsView,
            handle=management.log_requests,
        ),
        of_one(
            "POST",
            "/log-level",
            name="set_log_level",
            summary="Give a logger of the user's code a level for a while.",
            answer=LogRequestsView,
            handle=management.set_log_level,
            status=202,
            body=(
                Parameter("logger", str, "Its name; the root logger is empty.", "", place="body"),
                Parameter("level", str, "The level.", "DEBUG", LEVELS, place="body"),
                Parameter(
                    "secs", float, "For how long.", LEVEL_SECS, place="body", most=MOST_LEVEL_SECS
                ),
            ),
        ),
        of_one(
            "POST",
            "/sample",
            name="sample",
            summary="Log some of the tuples that a component emits for a while.",
            answer=LogRequestsView,
            handle=management.sample,
            status=202,
            body=(
                Parameter("component", str, "Whose tuples.", "", place="body"),
                Parameter(
                    "per_sec",
                    float,
                    "How many a second, of each task.",
                    PER_SEC,
                    place="body",
                    most=MOST_PER_SEC,
                ),
                Parameter(
                    "secs", float, "For how long.", SAMPLE_SECS, place="body", most=MOST_SAMPLE_SECS
                ),
            ),
        ),
        of_one(
            "POST",
            "/rebalance",
            name="rebalance",
            summary="Begin to go over to other numbers of slots or tasks: `topo rebalance`.",
            answer=Change,
            handle=management.rebalance,
            status=202,
            body=NUMBERS,
            least_given=1,
        ),
        of_one(
            "GET",
            "/scale",
            name="scale",
            summary="Show the decisions on how many slots it has, the latest first: `topo scale`.",
            answer=ScaleView,
            handle=management.scale,
        ),
        of_one(
            "GET",
            "/savepoints",
            name="savepoints",
            summary="List the savepoints that lie beside the registry, the latest first.",
            answer=SavepointList,
            handle=management.savepoints,
        ),
        of_one(
            "POST",
            "/savepoint",
            name="savepoint",
            summary="Write a savepoint beside the registry: `topo savepoint`.",
            answer=SavepointView,
            handle=management.savepoint,
            status=201,
        ),
        of_one(
            "POST",
            "/state",
            name="state",
            summary="Show the keyed state of a component: `topo state`.",
            answer=StateView,
            handle=management.state,
            body=(
                Parameter("component", str, "Whose state.", place="body", is_required=True),
                Parameter(
                    "key", str, "One key: as text, or as Python writes it.", "", place="body"
                ),
                Parameter("like", str, "Keys like this, such as user-*.", "", place="body"),
                Parameter(
                    "limit", int, "So many at most.", 100, place="body", least=1, most=MOST_ENTRIES
                ),
            ),
        ),
        of_one(
            "POST",
            "/stacks",
            name="stacks",
            summary="Show what the threads of a slot do: a dump, and samples for a flame graph.",
            answer=StacksView,
            handle=management.stacks,
            body=(
                Parameter("slot", int, "Which slot.", 0, place="body", least=0, most=1000),
                Parameter(
                    "secs", float, "How long to sample; 0: once.", 0.0, place="body", most=MOST_SECS
                ),
            ),
        ),
        of_one(
            "POST",
            "/kill",
            name="kill",
            summary="Begin to end a topology: stop the spouts, let what is in flight finish.",
            answer=Change,
            handle=management.kill,
            status=202,
            body=(
                Parameter(
                    "wait_secs",
                    float,
                    "How long to let what is in flight finish; default: the message timeout.",
                    place="body",
                    most=86_400,
                ),
            ),
        ),
    ]


EVENTS = Endpoint(
    "GET",
    "/api/events",
    "events",
    "Follow the list of topologies as server-sent events.",
    str,
    lambda: None,
    streams=True,
    refusals=_READ,
)
TOPOLOGY_EVENTS = Endpoint(
    "GET",
    "/api/topologies/{name}/events",
    "topology_events",
    "Follow a topology's figures as server-sent events.",
    str,
    lambda: None,
    (_NAME, _WINDOW),
    streams=True,
    refusals=_READ,
)
LOG_EVENTS = Endpoint(
    "GET",
    "/api/topologies/{name}/logs/events",
    "log_events",
    "Follow log lines as server-sent events.",
    str,
    lambda: None,
    (_NAME, *_LOGS),
    streams=True,
    refusals=_READ,
)
