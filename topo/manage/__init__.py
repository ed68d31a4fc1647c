"""Topologies that outlive the terminal: their submission, registry and control.

`registry` has the facts of every run, on disk; `driver` runs one topology and serves `service`;
`supervisor` restarts the driver when it dies; commands reach a driver through `client`.
"""

import topo.forks  # noqa: F401
