"""The Spark engine: a topology as one Structured Streaming query.

`plan` says what runs where and has no Spark in it. `session` starts Spark, on the Java that `java`
finds. `query` builds the streaming query, whose stages (`stages`) relay frames to the slot
processes (`slot`) that hold the component instances; `execution` is what those do with them. `run`
starts and watches it all.
"""

import os

# What gRPC's core has to say goes to the user's terminal; what matters of it, errors say as well.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# Spark is started by a fork while the ackers run: gRPC's own handling of forks breaks its poller.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
