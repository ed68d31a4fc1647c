"""Storm's topology settings without a meaning on Spark, and their replacements.

They are accepted, so that a configuration can be used unchanged; each causes one warning.
"""

from __future__ import annotations

_BY_REMEDY: dict[str, str] = {
    "set spark.executor.memory": """
        topology.component.resources.onheap.memory.mb topology.component.resources.offheap.memory.mb
        topology.component.resources.map topology.worker.max.heap.size.mb
        """,
    "set spark.executor.cores": "topology.component.cpu.pcore.percent",
    "set spark.executor.extraJavaOptions": """
        topology.worker.childopts topology.worker.gc.childopts topology.worker.logwriter.childopts
        """,
    "set spark.jars": "topology.classpath topology.classpath.beginning",
    "set spark.executorEnv.NAME": "topology.environment",
    "tuples are pickled": """
        topology.tuple.serializer topology.kryo.register topology.kryo.decorators
        topology.kryo.factory topology.skip.missing.kryo.registrations topology.state.kryo.register
        topology.fall.back.on.java.serialization
        """,
    "state is kept by Spark and committed with each batch": """
        topology.state.provider topology.state.provider.config topology.state.checkpoint.interval.ms
        topology.state.synchronization.timeout.secs
        """,
    "set topology.batch.poll.ms": """
        topology.spout.wait.strategy topology.spout.wait.park.microsec
        topology.spout.wait.progressive.level1.count topology.spout.wait.progressive.level2.count
        topology.spout.wait.progressive.level3.sleep.millis
        topology.sleep.spout.wait.strategy.time.ms
        """,
    "set topology.batch.target.ms": """
        topology.transfer.batch.size topology.producer.batch.size
        topology.batch.flush.interval.millis topology.disruptor.batch.size
        topology.disruptor.batch.timeout.millis topology.disruptor.wait.timeout.millis
        """,
    "set topology.max.spout.pending": """
        topology.backpressure.enable topology.backpressure.check.millis
        topology.backpressure.wait.strategy topology.backpressure.wait.park.microsec
        topology.backpressure.wait.progressive.level1.count
        topology.backpressure.wait.progressive.level2.count
        topology.backpressure.wait.progressive.level3.sleep.millis
        """,
    "windows are in committed state, so that no tuple is counted twice": """
        topology.bolts.message.id.field.name
        """,
    "use Python's logging": """
        topology.logging.config topology.logging.sensitivity topology.multilang.log.handler
        """,
    "see topo stats": """
        topology.metrics.consumer.register topology.metrics.reporters topology.worker.metrics
        topology.stats.sample.rate topology.stats.ewma.enable
        topology.builtin.metrics.bucket.size.secs topology.serialized.message.size.metrics
        topology.enable.v2.metrics.tick topology.v2.metrics.tick.interval.seconds
        topology.event.logger.register topology.eventlogger.executors
        """,
    "every error is kept once, with its count": """
        topology.error.throttle.interval.secs topology.max.error.report.per.interval
        """,
    "give ShellBolt and ShellSpout serializer=": "topology.multilang.serializer",
    "set topology.drpc.addresses, or topology.drpc.bind and topology.drpc.http.bind": """
        drpc.servers drpc.port drpc.http.port drpc.https.port drpc.invocations.port
        drpc.disable.http.binding
        """,
    "topo drpc has options for it": """
        drpc.request.timeout.secs drpc.queue.size drpc.authorizer drpc.authorizer.acl.filename
        drpc.authorizer.acl.strict drpc.https.keystore.path drpc.https.keystore.password
        drpc.https.keystore.type drpc.https.key.password drpc.http.creds.plugin
        """,
    "the server of calls has one thread and needs no such setting": """
        drpc.worker.threads drpc.invocations.threads drpc.max_buffer_size drpc.childopts
        """,
    "tasks are placed by Spark": """
        topology.scheduler.strategy topology.scheduler.favored.nodes
        topology.scheduler.unfavored.nodes topology.spread.components topology.isolate.machines
        topology.priority topology.ras.constraints topology.ras.constraint.max.state.search
        topology.ras.constraint.max.time.secs topology.ras.order.executors.by.proximity.needs
        topology.ras.one.executor.per.worker topology.ras.one.component.per.worker
        topology.shared.memory.on.heap topology.shared.memory.off.heap.worker
        topology.shared.memory.off.heap.node
        """,
    "an acker keeps numbers only and needs no memory setting": """
        topology.acker.resources.onheap.memory.mb topology.acker.resources.offheap.memory.mb
        topology.acker.cpu.pcore.percent topology.ras.acker.executors.per.worker
        """,
    "give --archives": "topology.blobstore.map",
    "give the component a Secret, which is looked up where the task runs": """
        topology.auto-credentials topology.auth.scheme topology.auth.payload
        """,
    "set topology.trace.rate, or read topo stats": "topology.auto.task.hooks",
    "set topology.batch.least.ms, or topology.epoch.ms in real-time mode": """
        topology.trident.batch.emit.interval.millis
        """,
    "windows are in committed state, whole": "topology.trident.windowing.cache.tuple.limit",
    "give roles in topo ui; a registry is its owner's": """
        topology.users topology.groups topology.readonly.users topology.readonly.groups
        topology.submitter.principal topology.submitter.user
        """,
    "bolts get whole batches and wait for none; set topology.batch.target.ms": """
        topology.bolt.wait.strategy topology.bolt.wait.park.microsec
        topology.bolt.wait.progressive.level1.count topology.bolt.wait.progressive.level2.count
        topology.bolt.wait.progressive.level3.sleep.millis topology.spout.recvq.skips
        """,
    "no queue stands between tasks; set topology.batch.max.tuples": """
        topology.bolts.outgoing.overflow.buffer.enable topology.executor.overflow.limit
        topology.executor.receive.buffer.size topology.executor.send.buffer.size
        topology.transfer.buffer.size topology.worker.receiver.thread.count
        """,
    "slots work a batch in step, so that no task has a longer queue than another": """
        topology.disable.loadaware topology.disable.loadaware.messaging
        topology.localityaware.higher.bound topology.localityaware.lower.bound
        """,
    "topo submit sends the code to every worker": """
        topology.max.replication.wait.time.sec topology.min.replication.count
        """,
    "figures are served: set topology.metrics.bind": """
        topology.metrics.consumer.cpu.pcore.percent
        topology.metrics.consumer.resources.offheap.memory.mb
        topology.metrics.consumer.resources.onheap.memory.mb
        topology.metrics.system.reporters topology.enable.send.iconnection.metrics
        """,
    "topo logs has the sample of tuples": """
        topology.eventlogger.max.retained.files topology.eventlogger.rotation.size.mb
        """,
    "set spark.kubernetes.container.image": "topology.oci.image",
    "look at topo list, or the registry's records": "topology.submission.notifier.plugin.class",
    "there is no Nimbus": "topology.worker.nimbus.thrift.client.use.tls",
    "tuples are pickled between slots on every engine but inline": """
        topology.testing.always.try.serialize
        """,
    "give the spout a name of its own in StreamBuilder": "topology.transactional.id",
    "name the release in topology.name, or in the checkpoint's directory": "topology.version",
    "start threads in prepare": "topology.worker.shared.thread.pool.size",
    "set spark.network.timeout": "topology.worker.timeout.secs",
}

IGNORED: dict[str, str] = {
    key: remedy for remedy, keys in _BY_REMEDY.items() for key in keys.split()
}
"""Storm's keys that mean nothing here, each with what to do instead."""
