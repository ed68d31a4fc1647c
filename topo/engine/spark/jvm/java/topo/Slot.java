package topo;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * The way to the process of one slot. On one machine the driver has started it. On a cluster the
 * driver cannot, but a task can: the first task of a slot in an executor starts the slot's process
 * there, and the last one to go ends it; the process asks the driver what to run. It ends with its
 * standard input too, so it does not outlive the executor.
 */
final class Slot {
  private static final Map<String, Slot> STARTED = new HashMap<>(); // also the lock of `users`
  private static final int LONGEST_PATH = 60; // a path to a socket has to be short

  private final String key;
  private final int number;
  private final String path;
  private int users;
  private Process process;
  private File directory;

  private Slot(String key, int number, String path) {
    this.key = key;
    this.number = number;
    this.path = path;
  }

  /** `home` is the directory of the sockets, or how to start a process: driver, Python, program. */
  static Slot enter(String home, String token, int number) throws IOException {
    if (home.startsWith("/")) return new Slot("", number, home + "/slot-" + number);
    synchronized (STARTED) {
      String key = token + "/" + number;
      Slot slot = STARTED.get(key);
      if (slot == null) {
        slot = start(key, home, token, number);
        STARTED.put(key, slot);
      }
      slot.users++;
      return slot;
    }
  }

  void leave() {
    if (process == null) return;
    synchronized (STARTED) {
      if (--users > 0) return;
      STARTED.remove(key);
      end();
    }
  }

  String path() {
    return path;
  }

  /** Throws if the process has ended. */
  void check() throws IOException {
    if (process != null && !process.isAlive()) throw lost();
  }

  /** What is known of its end. */
  IOException lost() {
    String subject = "topo: the process of slot " + number;
    if (process == null) return new IOException(subject + " is gone");
    try {
      process.waitFor(1L, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    if (process.isAlive()) return new IOException(subject + " is gone");
    String words = read(".words");
    if (!words.isEmpty()) return new IOException(subject + " did not start: " + words + " [topo]");
    int code = process.exitValue();
    String end = code > 128 ? " was ended by signal " + (code - 128) : " ended with exit code " + code;
    String doing = read(".doing");
    String during = doing.isEmpty() ? "" : " while " + doing + " was executed";
    return new IOException(subject + end + during + " [topo]");
  }

  private static Slot start(String key, String home, String token, int number) throws IOException {
    String[] parts = home.split("\n");
    File directory = makeDirectory();
    Slot slot = new Slot(key, number, directory.getPath() + "/slot-" + number);
    slot.directory = directory;
    ProcessBuilder builder = new ProcessBuilder(parts[1], "-P", "-c", parts[2]);
    builder.redirectOutput(ProcessBuilder.Redirect.INHERIT);
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    try {
      slot.process = builder.start();
      byte[] text =
          String.join("\n", parts[0], token, Integer.toString(number), slot.path)
              .getBytes(StandardCharsets.UTF_8);
      ByteBuffer place = ByteBuffer.allocate(8 + text.length).order(ByteOrder.LITTLE_ENDIAN);
      place.putLong(text.length).put(text);
      OutputStream input = slot.process.getOutputStream();
      input.write(place.array());
      input.flush(); // and it stays open, for as long as this lives
    } catch (IOException e) {
      slot.end();
      throw e;
    }
    return slot;
  }

  private static File makeDirectory() throws IOException {
    File usual = new File(System.getProperty("java.io.tmpdir"));
    File parent = usual.getPath().length() > LONGEST_PATH ? new File("/tmp") : usual;
    return Files.createTempDirectory(parent.toPath(), "topo-slots-").toFile();
  }

  private String read(String kind) {
    try {
      byte[] data = Files.readAllBytes(new File(path + kind).toPath());
      return new String(data, StandardCharsets.UTF_8).replace((char) 0, ' ').trim();
    } catch (IOException e) {
      return "";
    }
  }

  private void end() {
    if (process != null) process.destroyForcibly();
    File[] files = directory.listFiles();
    if (files != null) {
      for (File file : files) file.delete();
    }
    directory.delete();
  }
}
