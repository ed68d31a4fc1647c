"""The Spark engine: a topology as one Structured Streaming query.

`plan` says what runs where and has no Spark in it. `session` starts Spark, on the Java that `java`
finds. `query` builds the streaming query, whose stages (`stages`) relay frames to the slot
processes (`slot`) that hold the component instances; `execution` is what those do with them. `run`
starts and watches it all.
"""

import topo.forks  # noqa: F401
