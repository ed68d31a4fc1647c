package topo;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.PartitionOffset;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeMode;
import org.apache.spark.sql.connector.read.streaming.SupportsRealTimeRead;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The source of real-time mode: a row is a frame that the spouts of a slot have emitted. */
public final class Spouts implements TableProvider {
  public static StructType schema() {
    return new StructType().add("key", DataTypes.IntegerType).add("payload", DataTypes.BinaryType);
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    return schema();
  }

  @Override
  public Table getTable(
      StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new Rows();
  }

  private static final class Rows implements Table, SupportsRead {
    @Override
    public String name() {
      return "topo";
    }

    @Override
    @SuppressWarnings("deprecation") // what comes in its place wants the types of columns written anew
    public StructType schema() {
      return Spouts.schema();
    }

    @Override
    public Set<TableCapability> capabilities() {
      return Set.of(TableCapability.MICRO_BATCH_READ);
    }

    @Override
    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
      return new Reading(new HashMap<>(options.asCaseSensitiveMap()));
    }
  }

  private record Reading(HashMap<String, String> options) implements ScanBuilder, Scan {
    @Override
    public Scan build() {
      return this;
    }

    @Override
    public StructType readSchema() {
      return Spouts.schema();
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpoint) {
      return new Stream(options);
    }
  }

  private static final class Number extends Offset {
    final long number;

    Number(long number) {
      this.number = number;
    }

    @Override
    public String json() {
      return Long.toString(number);
    }
  }

  private record SlotOffset(int slot) implements PartitionOffset {}

  private record SlotPartition(int slot, HashMap<String, String> options)
      implements InputPartition {}

  /** Offsets mean nothing here: what is resumed from is topo's own log. */
  private static final class Stream implements MicroBatchStream, SupportsRealTimeMode {
    private final HashMap<String, String> options;
    private long merged = 0;

    Stream(HashMap<String, String> options) {
      this.options = options;
    }

    @Override
    public Offset initialOffset() {
      return new Number(0);
    }

    @Override
    public Offset latestOffset() {
      return new Number(merged);
    }

    @Override
    public Offset deserializeOffset(String json) {
      return new Number(Long.parseLong(json.trim()));
    }

    @Override
    public void commit(Offset end) {}

    @Override
    public void stop() {}

    @Override
    public void prepareForRealTimeMode() {}

    @Override
    public InputPartition[] planInputPartitions(Offset start, Offset end) {
      return planInputPartitions(start);
    }

    @Override
    public InputPartition[] planInputPartitions(Offset start) {
      merged = ((Number) start).number;
      InputPartition[] partitions = new InputPartition[Integer.parseInt(options.get("slots"))];
      for (int slot = 0; slot < partitions.length; slot++) {
        partitions[slot] = new SlotPartition(slot, options);
      }
      return partitions;
    }

    @Override
    public Offset mergeOffsets(PartitionOffset[] offsets) {
      return new Number(merged + 1);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new Readers();
    }
  }

  private static final class Readers implements PartitionReaderFactory {
    private static final long serialVersionUID = 1;

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      try {
        return new Reader((SlotPartition) partition);
      } catch (IOException e) {
        throw new UncheckedIOException("topo: no slot process to connect to", e);
      }
    }
  }

  /** Level 0: what the slot's spouts emit. */
  private static final class Reader implements SupportsRealTimeRead<InternalRow> {
    private final int slot;
    private final Pipe pipe;
    private InternalRow current;

    Reader(SlotPartition partition) throws IOException {
      slot = partition.slot();
      Map<String, String> options = partition.options();
      pipe = new Pipe(options.get("home"), options.get("token"), 0, slot, true);
    }

    @Override
    public boolean next() {
      throw new UnsupportedOperationException("real-time mode alone");
    }

    @Override
    public RecordStatus nextWithTimeout(Long start, Long timeoutMs) {
      try {
        int received = pipe.receive(System.nanoTime() + timeoutMs * 1_000_000L);
        if (received < 0) throw pipe.lost();
        if (received > 0) {
          current = new GenericInternalRow(new Object[] {pipe.key(), pipe.payload()});
        }
        return RecordStatus.newStatusWithoutArrivalTime(received > 0);
      } catch (IOException e) {
        throw new UncheckedIOException(pipe.lost().getMessage(), e);
      }
    }

    @Override
    public InternalRow get() {
      return current;
    }

    @Override
    public PartitionOffset getOffset() {
      return new SlotOffset(slot);
    }

    @Override
    public void close() {
      pipe.close();
    }
  }
}
