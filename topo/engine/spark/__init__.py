"""The Spark engine: a topology as one Structured Streaming query.

`plan` says what runs where and has no Spark in it. `jvm.session` starts Spark, on the Java that
`jvm.java` finds. `driver.query` builds the streaming query, whose stages (`worker.stages`) relay
frames to the slot processes (`worker.slot_process`) that hold the component instances;
`worker.execution` is what those do with them. `driver.run` starts and watches it all.
"""

import topo.forks  # noqa: F401
