"""Topologies that outlive the terminal: submitting them, finding them, commanding them.

`registry` is what is known of every run, on disk; `driver` runs one topology and serves `service`;
`supervisor` starts the driver again when it dies; `client` is how a command reaches a driver.
"""

import topo.forks  # noqa: F401
