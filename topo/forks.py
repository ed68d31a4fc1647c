"""Imported before gRPC, which reads these once: what it does about forks, and what it says.

Spark is started by a fork while ackers or the control service run. gRPC's own handling of forks
would break its poller in that child, or block; the child is about to become another program and
needs none of it. And what gRPC's core has to say would go to the user's terminal; what matters of
it, errors say as well.
"""

import os

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
