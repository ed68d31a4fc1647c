package topo;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.SQLContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Ascending$;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.NullsFirst$;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.catalyst.types.DataTypeUtils;
import org.apache.spark.sql.classic.Dataset$;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.execution.streaming.Offset;
import org.apache.spark.sql.execution.streaming.Source;
import org.apache.spark.sql.sources.StreamSourceProvider;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.Tuple2;
import scala.collection.immutable.Map;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The source of micro-batches: a row for each slot, which calls it, in the partition of its number.
 *
 * <p>Spark puts an exchange before each level with state, unless it knows that the rows are where
 * their keys belong. It cannot know that of a source of the newer kind. One of the older kind gives
 * a plan of its own, and this one says so: the spouts' level then needs no exchange and no sort, and
 * a batch has one stage less. Offsets are written as those of Spark's "rate-micro-batch", so that
 * either source resumes what the other has begun.
 */
public final class Calls implements StreamSourceProvider {
  public static StructType schema() {
    return new StructType()
        .add("key", DataTypes.IntegerType, false)
        .add("level", DataTypes.IntegerType, false)
        .add("payload", DataTypes.BinaryType, false);
  }

  @Override
  public Tuple2<String, StructType> sourceSchema(
      SQLContext context,
      Option<StructType> schema,
      String provider,
      Map<String, String> options) {
    return new Tuple2<>("topo", schema());
  }

  @Override
  public Source createSource(
      SQLContext context,
      String checkpoint,
      Option<StructType> schema,
      String provider,
      Map<String, String> options) {
    SparkSession session = (SparkSession) context.sparkSession();
    List<Integer> keys = new ArrayList<>();
    for (String key : options.apply("keys").split(",")) keys.add(Integer.valueOf(key));
    return new Rows(session, keys);
  }

  /** How many rows there have been, as Spark's own source counts them; their time stands still. */
  private static final class Count extends Offset {
    private static final Pattern WRITTEN =
        Pattern.compile("\\{\"offset\":(\\d+),\"timestamp\":(\\d+)\\}");

    private final long rows;
    private final long time;

    private Count(long rows, long time) {
      this.rows = rows;
      this.time = time;
    }

    /** The count of so many rows more; `before` is null at the start of a query. */
    static Count after(org.apache.spark.sql.connector.read.streaming.Offset before, int more) {
      if (before == null) return new Count(more, 0);
      Matcher found = WRITTEN.matcher(before.json());
      if (!found.matches()) throw new IllegalArgumentException("not an offset: " + before.json());
      return new Count(Long.parseLong(found.group(1)) + more, Long.parseLong(found.group(2)));
    }

    @Override
    public String json() {
      return "{\"offset\":" + rows + ",\"timestamp\":" + time + "}";
    }
  }

  private static final class Rows implements Source, SupportsAdmissionControl {
    private final int slots;
    private final Dataset<Row> batch;

    Rows(SparkSession session, List<Integer> keys) {
      slots = keys.size();
      batch = Dataset$.MODULE$.ofRows(session, plan(session, keys));
    }

    private static LogicalRDD plan(SparkSession session, List<Integer> keys) {
      List<InternalRow> rows = new ArrayList<>();
      for (Integer key : keys) {
        rows.add(new GenericInternalRow(new Object[] {key, 0, new byte[0]}));
      }
      RDD<InternalRow> rdd =
          JavaSparkContext.fromSparkContext(session.sparkContext())
              .parallelize(rows, rows.size())
              .rdd();
      List<Attribute> output =
          new ArrayList<>(CollectionConverters.asJava(DataTypeUtils.toAttributes(Calls.schema())));
      Attribute key = output.get(0);
      SortOrder order = new SortOrder(key, Ascending$.MODULE$, NullsFirst$.MODULE$, seq(List.of()));
      return new LogicalRDD(
          seq(output),
          rdd,
          new HashPartitioning(seq(List.<Expression>of(key)), rows.size()),
          seq(List.of(order)),
          true,
          Option.empty(),
          session,
          Option.empty(),
          Option.empty(),
          false);
    }

    private static <T> Seq<T> seq(List<T> values) {
      return CollectionConverters.asScala(values).toSeq();
    }

    @Override
    public StructType schema() {
      return Calls.schema();
    }

    @Override
    public org.apache.spark.sql.connector.read.streaming.Offset latestOffset(
        org.apache.spark.sql.connector.read.streaming.Offset start, ReadLimit limit) {
      return Count.after(start, slots);
    }

    @Override
    public Option<Offset> getOffset() {
      throw new UnsupportedOperationException("Spark asks for the offset after another");
    }

    @Override
    public Dataset<Row> getBatch(Option<Offset> start, Offset end) {
      return batch;
    }

    @Override
    public void stop() {}
  }
}
