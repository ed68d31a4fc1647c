package topo;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * One end of a unix socket to a slot's process: frames of a key, a length and as many bytes, little
 * endian. One thread sends, another one receives; anybody may close it.
 */
final class Pipe implements AutoCloseable {
  private static final long CONNECT_NS = TimeUnit.SECONDS.toNanos(30);
  private static final long PAUSE_NS = TimeUnit.MILLISECONDS.toNanos(5);
  private static final int BUFFER = 1 << 18;
  private static final int HEAD = 8;

  private final Slot slot;
  private final ByteBuffer in = ByteBuffer.allocateDirect(BUFFER).order(ByteOrder.LITTLE_ENDIAN);
  private final ByteBuffer out = ByteBuffer.allocateDirect(BUFFER).order(ByteOrder.LITTLE_ENDIAN);
  private SocketChannel channel;
  private Selector selector;
  private boolean isClosed;
  private int key;
  private byte[] payload;

  /** `selects`: `receive` looks at its deadline. */
  Pipe(String home, String token, int level, int number, boolean selects) throws IOException {
    slot = Slot.enter(home, token, number);
    try {
      connect();
      in.limit(0);
      send(level, token.getBytes(StandardCharsets.US_ASCII));
      if (selects) {
        channel.configureBlocking(false);
        selector = Selector.open();
        channel.register(selector, SelectionKey.OP_READ);
      }
    } catch (IOException e) {
      close();
      throw e;
    }
  }

  private void connect() throws IOException {
    long deadline = System.nanoTime() + CONNECT_NS;
    while (true) {
      try {
        channel = SocketChannel.open(StandardProtocolFamily.UNIX); // a failed one stays closed
        channel.connect(UnixDomainSocketAddress.of(slot.path()));
        return;
      } catch (ClosedByInterruptException e) {
        throw e; // the query is being stopped
      } catch (IOException e) {
        channel.close();
        slot.check();
        if (System.nanoTime() > deadline) throw e;
        LockSupport.parkNanos(PAUSE_NS);
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

  /** Return 1 if there is a frame, 0 if none came in time, -1 at the end. */
  int receive(long deadline) throws IOException {
    while (true) {
      if (in.remaining() >= HEAD) {
        int length = in.getInt(in.position() + 4);
        if (in.remaining() >= HEAD + length) {
          take(length, length);
          return 1;
        }
        if (HEAD + length > in.capacity()) return receiveLarge(length);
      }
      in.compact();
      int read = channel.read(in);
      in.flip();
      if (read < 0) return -1;
      if (read == 0 && selector != null) {
        long left = deadline - System.nanoTime();
        if (left <= 0) return 0;
        await(Math.max(1L, Math.min(left / 1_000_000L, 1000L)));
      }
    }
  }

  /** The key of the frame that was received last. */
  int key() {
    return key;
  }

  byte[] payload() {
    return payload;
  }

  private int receiveLarge(int length) throws IOException {
    int begun = in.remaining() - HEAD;
    take(length, begun);
    ByteBuffer rest = ByteBuffer.wrap(payload, begun, length - begun);
    while (rest.hasRemaining()) {
      int read = channel.read(rest);
      if (read < 0) return -1;
      if (read == 0) await(100L);
    }
    return 1;
  }

  private void take(int length, int available) {
    key = in.getInt();
    in.getInt();
    payload = new byte[length];
    in.get(payload, 0, available);
  }

  private void await(long ms) throws IOException {
    selector.select(ms);
    selector.selectedKeys().clear();
    if (Thread.currentThread().isInterrupted()) throw new InterruptedIOException();
  }

  /** Why nothing comes any more. */
  IOException lost() {
    return slot.lost();
  }

  @Override
  public synchronized void close() {
    if (isClosed) return;
    isClosed = true;
    closeQuietly(channel);
    closeQuietly(selector);
    slot.leave();
  }

  private static void closeQuietly(AutoCloseable resource) {
    if (resource == null) return;
    try {
      resource.close();
    } catch (Exception e) {
      // It is gone in any case.
    }
  }
}
