"""What has to hold before any test module is imported."""

import os

# Tests of the ackers leave gRPC's threads behind in this process, and PySpark forks it to start the
# JVM. gRPC's fork handlers would then block, or break the child. Read when grpc is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
