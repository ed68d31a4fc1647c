package topo;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Iterator;
import org.apache.spark.TaskContext;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.util.TaskCompletionListener;

/** The levels after the spouts': rows go to the slot's process, and what it sends goes on. */
public final class Relay implements MapPartitionsFunction<Row, Row> {
  private static final long serialVersionUID = 1;

  private final String home;
  private final String token;
  private final int level;

  public Relay(String home, String token, int level) {
    this.home = home;
    this.token = token;
    this.level = level;
  }

  @Override
  public Iterator<Row> call(Iterator<Row> rows) throws IOException {
    TaskContext context = TaskContext.get();
    Pipe pipe = new Pipe(home, token, level, context.partitionId(), false);
    context.addTaskCompletionListener((TaskCompletionListener) ended -> pipe.close());
    Pump pump = new Pump(rows, pipe, context);
    pump.start();
    return new Rows(pipe, pump);
  }

  /** The thread that hands rows to the slot's process. */
  private static final class Pump extends Thread {
    private final Iterator<Row> rows;
    private final Pipe pipe;
    private final TaskContext context;
    private volatile Throwable failure;

    Pump(Iterator<Row> rows, Pipe pipe, TaskContext context) {
      super("topo-pump");
      setDaemon(true);
      this.rows = rows;
      this.pipe = pipe;
      this.context = context;
    }

    @Override
    public void run() {
      org.apache.spark.TaskContext$.MODULE$.setTaskContext(context);
      try {
        while (rows.hasNext()) {
          Row row = rows.next();
          pipe.send(row.getInt(0), (byte[]) row.get(1));
        }
        failure = new IOException("topo: Spark ended the batch");
      } catch (Throwable e) {
        failure = e;
      }
      pipe.close(); // nothing may be taken for the end of a stream that has none
    }
  }

  /** What the slot's process sends; it never ends but by an error. */
  private static final class Rows implements Iterator<Row> {
    private final Pipe pipe;
    private final Pump pump;
    private Row current;

    Rows(Pipe pipe, Pump pump) {
      this.pipe = pipe;
      this.pump = pump;
    }

    @Override
    public boolean hasNext() {
      if (current != null) return true;
      IOException ended = null;
      try {
        if (pipe.receive(0L) > 0) {
          current = RowFactory.create(pipe.key(), pipe.payload());
          return true;
        }
      } catch (IOException e) {
        ended = e;
      }
      String lost = pipe.lost().getMessage();
      pipe.close();
      Throwable cause = pump.failure != null ? pump.failure : ended;
      throw cause instanceof IOException e
          ? new UncheckedIOException(lost, e) : new RuntimeException(lost, cause);
    }

    @Override
    public Row next() {
      Row row = current;
      current = null;
      return row;
    }
  }
}
