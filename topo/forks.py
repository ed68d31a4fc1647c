"""gRPC's environment variables for forks and logs, which it reads once, at its import.

Spark is started by a fork while ackers run. gRPC's own handling of forks would break its poller in
that child, or block; the child is about to become another program and needs none of it. The log of
gRPC's core would go to the user's terminal; topo's errors carry its important parts.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
