"""Commands of Storm and streamparse, and what does the same in topo.

Who comes from there types them; the answer names topo's command instead of one that is spelt alike.
"""

from __future__ import annotations

_STORM = {
    "admin": "topo checkpoints, or topo kill --purge NAME",
    "blobstore": "topo submit --py-files F,... TARGET",
    "classpath": "topo doctor",
    "dev-zookeeper": "nothing: there is no ZooKeeper",
    "drpc-client": "topo drpc call FUNCTION ARGS",
    "get-errors": "topo errors NAME",
    "heartbeats": "topo list",
    "jar": "topo submit TARGET",
    "kill_workers": "topo kill NAME",
    "localconfvalue": "topo explain --conf TARGET",
    "logviewer": "topo logs -f NAME, or topo ui",
    "monitor": "topo stats --watch NAME",
    "nimbus": "nothing: each topology has a driver of its own, which topo submit starts",
    "node-health-check": "topo doctor",
    "pacemaker": "nothing: there is no Pacemaker, Spark watches the workers",
    "remoteconfvalue": "topo explain --conf TARGET",
    "repl": "topo local TARGET, or Python itself",
    "server_classpath": "topo doctor",
    "set_log_level": "topo logs --set LOGGER=LEVEL:SECS NAME",
    "shell": "topo submit TARGET",
    "sql": "QueryBolt, in topo.connectors.query",
    "supervisor": "nothing: Spark starts the workers",
    "upload-credentials": "a Secret, which is looked up where the task runs",
    "version": "topo --version",
}
_STREAMPARSE = {
    "slot_usage": "topo list",
    "tail": "topo logs -f NAME",
    "update_virtualenv": "topo submit --archives env.tar.gz#env TARGET",
    "visualize": "topo explain --format mermaid TARGET",
    "worker_uptime": "topo list",
}


def answer_to(command: str) -> tuple[str, str] | None:
    """Return a message and a hint for a command of Storm's or streamparse's; None for any other."""
    spelt = {"_": "-", "-": "_"}
    for whose, answers in (("Storm", _STORM), ("streamparse", _STREAMPARSE)):
        for name in (command, *(command.replace(a, b) for a, b in spelt.items())):
            if name in answers:
                return f"no command {command!r}, which is {whose}'s", answers[name]
    return None
