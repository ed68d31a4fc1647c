"""The Java that real-time mode runs inside Spark: a source, a relay a level, a sink.

Spark's real-time mode streams row by row between stages. Its Python workers would hold rows back by
milliseconds a stage, so the stages here are Java, and no more than pipes: a slot's process has a
unix socket for each level, through which the level's input comes in and its output goes out. The
source is the output of the spouts' level. All of it passes Spark's own check of what real-time mode
allows, which is why the sink is a `foreach` and not `noop`.

Spark compiles it with the compiler that it has for its own generated code (janino: no lambdas, and
casts where generics would be). The classes go to a directory that has been on the class path since
the JVM was started, for that is where Spark looks for a source by its name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from topo.engine.spark.jvm.classes import CLASSES
from topo.errors import EngineError

if TYPE_CHECKING:
    from pyspark import SparkContext

SOURCE_CLASS = "TopoSource"
CONNECT_SECS = 30

SOURCE = """
import java.io.*;
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.charset.*;
import java.util.*;
import java.util.concurrent.locks.LockSupport;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.connector.read.streaming.*;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

public class TopoSource implements TableProvider {
  public static StructType schema() {
    return new StructType().add("key", DataTypes.IntegerType).add("payload", DataTypes.BinaryType);
  }
  public StructType inferSchema(CaseInsensitiveStringMap options) { return schema(); }
  public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
    return new TopoTable();
  }
}

class TopoTable implements Table, SupportsRead {
  public String name() { return "topo"; }
  public StructType schema() { return TopoSource.schema(); }
  public Set capabilities() {
    return new HashSet(Arrays.asList(new Object[] {TableCapability.MICRO_BATCH_READ}));
  }
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return new TopoScan(new HashMap(options.asCaseSensitiveMap()));
  }
}

class TopoScan implements ScanBuilder, Scan {
  final HashMap options;
  TopoScan(HashMap options) { this.options = options; }
  public Scan build() { return this; }
  public StructType readSchema() { return TopoSource.schema(); }
  public MicroBatchStream toMicroBatchStream(String checkpoint) { return new TopoStream(options); }
}

class TopoOffset extends Offset {
  final long number;
  TopoOffset(long number) { this.number = number; }
  public String json() { return Long.toString(number); }
}

class TopoPartitionOffset implements PartitionOffset {
  final int slot;
  TopoPartitionOffset(int slot) { this.slot = slot; }
}

/** Offsets mean nothing here: what is resumed from is topo's own log. */
class TopoStream implements MicroBatchStream, SupportsRealTimeMode {
  final HashMap options;
  long merged = 0;
  TopoStream(HashMap options) { this.options = options; }
  public Offset initialOffset() { return new TopoOffset(0); }
  public Offset latestOffset() { return new TopoOffset(merged); }
  public Offset deserializeOffset(String json) {
    return new TopoOffset(Long.parseLong(json.trim()));
  }
  public void commit(Offset end) { }
  public void stop() { }
  public void prepareForRealTimeMode() { }
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return planInputPartitions(start);
  }
  public InputPartition[] planInputPartitions(Offset start) {
    merged = ((TopoOffset) start).number;
    int slots = Integer.parseInt((String) options.get("slots"));
    InputPartition[] parts = new InputPartition[slots];
    for (int slot = 0; slot < slots; slot++) parts[slot] = new TopoPartition(slot, options);
    return parts;
  }
  public Offset mergeOffsets(PartitionOffset[] offsets) { return new TopoOffset(merged + 1); }
  public PartitionReaderFactory createReaderFactory() { return new TopoReaders(); }
}

class TopoPartition implements InputPartition {
  final int slot;
  final HashMap options;
  TopoPartition(int slot, HashMap options) { this.slot = slot; this.options = options; }
}

class TopoReaders implements PartitionReaderFactory {
  public PartitionReader createReader(InputPartition partition) {
    try {
      return new TopoReader((TopoPartition) partition);
    } catch (IOException e) {
      throw new RuntimeException("topo: no slot process to connect to", e);
    }
  }
}

/** Level 0: what the slot's spouts emit. */
class TopoReader implements SupportsRealTimeRead {
  final int slot;
  final TopoPipe pipe;
  GenericInternalRow current;
  TopoReader(TopoPartition part) throws IOException {
    slot = part.slot;
    String sockets = (String) part.options.get("sockets");
    pipe = new TopoPipe(sockets, (String) part.options.get("token"), 0, slot, true);
  }
  public boolean next() { throw new UnsupportedOperationException("real-time mode alone"); }
  public SupportsRealTimeRead.RecordStatus nextWithTimeout(Long start, Long timeoutMs) {
    try {
      long timeout = timeoutMs.longValue();
      int got = pipe.receive(System.nanoTime() + timeout * 1000000L);
      if (got < 0) throw new RuntimeException("topo: the slot's process is gone");
      if (got > 0) {
        current = new GenericInternalRow(new Object[] {Integer.valueOf(pipe.key), pipe.payload});
      }
      return SupportsRealTimeRead.RecordStatus.newStatusWithoutArrivalTime(got > 0);
    } catch (IOException e) {
      throw new RuntimeException("topo: the slot's process is gone", e);
    }
  }
  public Object get() { return current; }
  public PartitionOffset getOffset() { return new TopoPartitionOffset(slot); }
  public void close() { pipe.close(); }
}

/** The other levels: rows go to the slot's process, and what it sends goes on. */
public class TopoRelay implements MapPartitionsFunction {
  final String sockets;
  final String token;
  final int level;
  public TopoRelay(String sockets, String token, int level) {
    this.sockets = sockets;
    this.token = token;
    this.level = level;
  }
  public Iterator call(Iterator rows) throws Exception {
    TaskContext context = TaskContext.get();
    TopoPipe pipe = new TopoPipe(sockets, token, level, context.partitionId(), false);
    TopoPump pump = new TopoPump(rows, pipe, context);
    pump.start();
    return new TopoRows(pipe, pump);
  }
}

class TopoPump extends Thread {
  final Iterator rows;
  final TopoPipe pipe;
  final TaskContext context;
  volatile Throwable failure;
  TopoPump(Iterator rows, TopoPipe pipe, TaskContext context) {
    super("topo-pump");
    setDaemon(true);
    this.rows = rows;
    this.pipe = pipe;
    this.context = context;
  }
  public void run() {
    org.apache.spark.TaskContext$.MODULE$.setTaskContext(context);
    try {
      while (rows.hasNext()) {
        Row row = (Row) rows.next();
        pipe.send(row.getInt(0), (byte[]) row.get(1));
      }
      failure = new IOException("topo: Spark ended the batch");
    } catch (Throwable e) {
      failure = e;
    }
    pipe.close(); // nothing may be taken for the end of a stream that has none
  }
}

class TopoRows implements Iterator {
  final TopoPipe pipe;
  final TopoPump pump;
  Row current;
  TopoRows(TopoPipe pipe, TopoPump pump) { this.pipe = pipe; this.pump = pump; }
  public boolean hasNext() {
    if (current != null) return true;
    try {
      if (pipe.receive(0L) > 0) {
        current = RowFactory.create(new Object[] {Integer.valueOf(pipe.key), pipe.payload});
        return true;
      }
    } catch (IOException e) {
      throw new RuntimeException("topo: the slot's process is gone",
          pump.failure != null ? pump.failure : e);
    } finally {
      if (current == null) pipe.close();
    }
    throw new RuntimeException("topo: the slot's process is gone", pump.failure);
  }
  public Object next() { Row row = current; current = null; return row; }
  public void remove() { throw new UnsupportedOperationException(); }
}

/** One end of a unix socket: frames of a key, a length and as many bytes, little endian. */
class TopoPipe {
  SocketChannel channel;
  Selector selector;
  final ByteBuffer in = ByteBuffer.allocateDirect(1 << 18).order(ByteOrder.LITTLE_ENDIAN);
  final ByteBuffer out = ByteBuffer.allocateDirect(1 << 18).order(ByteOrder.LITTLE_ENDIAN);
  int key;
  byte[] payload;
  TopoPipe(String sockets, String token, int level, int slot, boolean selecting)
      throws IOException {
    String path = sockets + "/slot-" + slot;
    IOException last = null;
    boolean done = false;
    for (int i = 0; i < CONNECT_TRIES && !done; i++) {
      try {
        channel = SocketChannel.open(StandardProtocolFamily.UNIX); // a failed one stays closed
        channel.connect(UnixDomainSocketAddress.of(path));
        done = true;
      } catch (ClosedByInterruptException e) {
        throw e; // the query is being stopped
      } catch (IOException e) {
        last = e;
        channel.close();
        LockSupport.parkNanos(5000000L);
        if (Thread.currentThread().isInterrupted()) throw new InterruptedIOException();
      }
    }
    if (!done) throw last;
    in.limit(0);
    send(level, token.getBytes(StandardCharsets.US_ASCII));
    if (selecting) {
      channel.configureBlocking(false);
      selector = Selector.open();
      channel.register(selector, SelectionKey.OP_READ);
    }
  }
  void send(int key, byte[] data) throws IOException {
    out.clear();
    out.putInt(key);
    out.putInt(data.length);
    int at = 0;
    do {
      int part = Math.min(out.remaining(), data.length - at);
      out.put(data, at, part);
      at += part;
      out.flip();
      while (out.hasRemaining()) channel.write(out);
      out.clear();
    } while (at < data.length);
  }
  /** 1: a frame is there; 0: none in time; -1: the end. */
  int receive(long deadline) throws IOException {
    while (true) {
      if (in.remaining() >= 8) {
        int length = in.getInt(in.position() + 4);
        if (in.remaining() >= 8 + length) {
          take(length, length);
          return 1;
        }
        if (8 + length > in.capacity()) return receiveLarge(length);
      }
      in.compact();
      int n = channel.read(in);
      in.flip();
      if (n < 0) return -1;
      if (n == 0 && selector != null) {
        long left = deadline - System.nanoTime();
        if (left <= 0) return 0;
        await(Math.max(1L, Math.min(left / 1000000L, 1000L)));
      }
    }
  }
  int receiveLarge(int length) throws IOException {
    int have = in.remaining() - 8;
    take(length, have);
    ByteBuffer rest = ByteBuffer.wrap(payload, have, length - have);
    while (rest.hasRemaining()) {
      int n = channel.read(rest);
      if (n < 0) return -1;
      if (n == 0) await(100L);
    }
    return 1;
  }
  void take(int length, int have) {
    key = in.getInt();
    in.getInt();
    payload = new byte[length];
    in.get(payload, 0, have);
  }
  void await(long ms) throws IOException {
    selector.select(ms);
    selector.selectedKeys().clear();
    if (Thread.currentThread().isInterrupted()) throw new InterruptedIOException();
  }
  void close() {
    try { channel.close(); } catch (IOException e) { }
    if (selector != null) {
      try { selector.close(); } catch (IOException e) { }
    }
  }
}

public class TopoSink extends ForeachWriter {
  public boolean open(long partition, long epoch) { return true; }
  public void process(Object row) { }
  public void close(Throwable error) { }
}
""".replace("CONNECT_TRIES", str(CONNECT_SECS * 200))


def load_classes(context: SparkContext) -> Any:
    """Compile the classes into this Spark, unless it has them; return its JVM."""
    jvm = context._jvm
    assert jvm is not None
    path = context.getConf().get("spark.driver.extraClassPath", "") or ""
    directory = Path(path.split(os.pathsep)[0])
    if directory.name != CLASSES:
        raise EngineError(
            "this process's Spark was not started by topo, so it cannot run in real-time mode",
            code="real-time",
            hint="let topo start Spark, or set topology.mode=micro-batch",
        )
    directory.mkdir(exist_ok=True)
    if not (directory / f"{SOURCE_CLASS}.class").exists():
        _compile(jvm, directory)
    return jvm


def _compile(jvm: Any, directory: Path) -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    try:
        compiler = jvm.org.codehaus.janino.SimpleCompiler()
        compiler.setTargetVersion(8)
        compiler.setSourceVersion(8)
        compiler.cook(SOURCE)
        classes = dict(compiler.getBytecodes())
    except (Py4JError, TypeError) as error:  # the latter where Spark lacks the classes
        said = [line for line in str(error).splitlines() if "Exception" in line]
        raise EngineError(
            f"this Spark cannot run in real-time mode: {said[0].strip() if said else error}",
            code="real-time",
            hint="real-time mode needs Spark 4.3; else set topology.mode=micro-batch",
        ) from error
    # The source last: its being there says that all are.
    for name in sorted(classes, key=lambda name: name == SOURCE_CLASS):
        unfinished = directory / f"{name}.tmp"
        unfinished.write_bytes(bytes(classes[name]))
        unfinished.rename(directory / f"{name}.class")
