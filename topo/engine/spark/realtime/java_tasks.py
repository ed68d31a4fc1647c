"""The Java text of Spark's tasks in real-time mode: a source, a relay a level, a sink.

Janino compiles it, so there are no lambdas, and casts where generics would be. `java` says what
for; `java_slots` has the classes that start slots' processes on a cluster.
"""

from __future__ import annotations

CONNECT_SECS = 30

TASKS = """
import java.io.*;
import java.net.*;
import java.nio.*;
import java.nio.channels.*;
import java.nio.charset.*;
import java.nio.file.Files;
import java.nio.file.attribute.FileAttribute;
import java.util.*;
import java.util.concurrent.TimeUnit;
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
import org.apache.spark.util.TaskCompletionListener;

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
    String home = (String) part.options.get("home");
    pipe = new TopoPipe(home, (String) part.options.get("token"), 0, slot, true);
  }
  public boolean next() { throw new UnsupportedOperationException("real-time mode alone"); }
  public SupportsRealTimeRead.RecordStatus nextWithTimeout(Long start, Long timeoutMs) {
    try {
      long timeout = timeoutMs.longValue();
      int got = pipe.receive(System.nanoTime() + timeout * 1000000L);
      if (got < 0) throw pipe.lost();
      if (got > 0) {
        current = new GenericInternalRow(new Object[] {Integer.valueOf(pipe.key), pipe.payload});
      }
      return SupportsRealTimeRead.RecordStatus.newStatusWithoutArrivalTime(got > 0);
    } catch (IOException e) {
      throw new RuntimeException(pipe.lost().getMessage(), e);
    }
  }
  public Object get() { return current; }
  public PartitionOffset getOffset() { return new TopoPartitionOffset(slot); }
  public void close() { pipe.close(); }
}

/** The other levels: rows go to the slot's process, and what it sends goes on. */
public class TopoRelay implements MapPartitionsFunction {
  final String home;
  final String token;
  final int level;
  public TopoRelay(String home, String token, int level) {
    this.home = home;
    this.token = token;
    this.level = level;
  }
  public Iterator call(Iterator rows) throws Exception {
    TaskContext context = TaskContext.get();
    TopoPipe pipe = new TopoPipe(home, token, level, context.partitionId(), false);
    context.addTaskCompletionListener(new TopoEnd(pipe));
    TopoPump pump = new TopoPump(rows, pipe, context);
    pump.start();
    return new TopoRows(pipe, pump);
  }
}

class TopoEnd implements TaskCompletionListener {
  final TopoPipe pipe;
  TopoEnd(TopoPipe pipe) { this.pipe = pipe; }
  public void onTaskCompletion(TaskContext context) { pipe.close(); }
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
    IOException ended = null;
    try {
      if (pipe.receive(0L) > 0) {
        current = RowFactory.create(new Object[] {Integer.valueOf(pipe.key), pipe.payload});
        return true;
      }
    } catch (IOException e) {
      ended = e;
    }
    String lost = pipe.lost().getMessage();
    pipe.close();
    throw new RuntimeException(lost, pump.failure != null ? pump.failure : ended);
  }
  public Object next() { Row row = current; current = null; return row; }
  public void remove() { throw new UnsupportedOperationException(); }
}

/** One end of a unix socket: frames of a key, a length and as many bytes, little endian. */
class TopoPipe {
  SocketChannel channel;
  Selector selector;
  final TopoSlot slot;
  boolean closed = false;
  final ByteBuffer in = ByteBuffer.allocateDirect(1 << 18).order(ByteOrder.LITTLE_ENDIAN);
  final ByteBuffer out = ByteBuffer.allocateDirect(1 << 18).order(ByteOrder.LITTLE_ENDIAN);
  int key;
  byte[] payload;
  TopoPipe(String home, String token, int level, int number, boolean selecting)
      throws IOException {
    slot = TopoSlots.enter(home, token, number);
    try {
      connect(slot.path);
      in.limit(0);
      send(level, token.getBytes(StandardCharsets.US_ASCII));
      if (selecting) {
        channel.configureBlocking(false);
        selector = Selector.open();
        channel.register(selector, SelectionKey.OP_READ);
      }
    } catch (IOException e) {
      close();
      throw e;
    }
  }
  void connect(String path) throws IOException {
    long deadline = System.nanoTime() + CONNECT_MS * 1000000L;
    while (true) {
      try {
        channel = SocketChannel.open(StandardProtocolFamily.UNIX); // a failed one stays closed
        channel.connect(UnixDomainSocketAddress.of(path));
        return;
      } catch (ClosedByInterruptException e) {
        throw e; // the query is being stopped
      } catch (IOException e) {
        channel.close();
        slot.check();
        if (System.nanoTime() > deadline) throw e;
        LockSupport.parkNanos(5000000L);
        if (Thread.currentThread().isInterrupted()) throw new InterruptedIOException();
      }
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
  IOException lost() {
    return slot.lost();
  }
  synchronized void close() {
    if (closed) return;
    closed = true;
    try { if (channel != null) channel.close(); } catch (IOException e) { }
    if (selector != null) {
      try { selector.close(); } catch (IOException e) { }
    }
    TopoSlots.leave(slot);
  }
}

public class TopoSink extends ForeachWriter {
  public boolean open(long partition, long epoch) { return true; }
  public void process(Object row) { }
  public void close(Throwable error) { }
}
""".replace("CONNECT_MS", str(CONNECT_SECS * 1000))
