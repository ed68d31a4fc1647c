"""The Spark engine: a topology as one Structured Streaming query.

`plan` assigns tasks to levels and slots, and imports no Spark. `jvm.session` starts Spark, on the
Java that `jvm.java` finds. `driver.query` builds the streaming query, whose stages
(`worker.stages`) relay frames to the slot processes (`worker.slot_process`) that hold the component
instances; `worker.execution` is one execution of a level. `realtime` is the other mode; `process`
is how a slot's process starts, ends and frames its messages in both. `driver.run` starts and
watches them all.
"""

import topo.forks  # noqa: F401
from topo.systems import check_system

check_system()
