package topo;

import org.apache.spark.sql.ForeachWriter;
import org.apache.spark.sql.Row;

/** The end of a query in real-time mode, out of whose last level nothing comes. */
public final class Sink extends ForeachWriter<Row> {
  private static final long serialVersionUID = 1;

  @Override
  public boolean open(long partition, long epoch) {
    return true;
  }

  @Override
  public void process(Row row) {}

  @Override
  public void close(Throwable error) {}
}
