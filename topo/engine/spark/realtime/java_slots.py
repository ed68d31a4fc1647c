"""The Java text that starts slots' processes on a cluster, beside Spark's tasks.

The driver cannot start a process on an executor's machine, but a task can. The first task of a slot
in an executor starts the slot's process there, and the last one to go ends it; the process asks the
driver what to run. It ends with its standard input too, so it does not outlive the executor.
On one machine the driver has started the processes, and all this does is to know where they are.
"""

from __future__ import annotations

SLOTS = """
/** The way to the process of one slot; `home` is a directory, or how to start it. */
class TopoSlot {
  final String key;
  final String path;
  final int number;
  int users = 0;
  Process process;
  File directory;
  TopoSlot(String key, int number, String path) {
    this.key = key;
    this.number = number;
    this.path = path;
  }
  static TopoSlot start(String key, String home, String token, int number) throws IOException {
    String[] parts = home.split("\\n");
    File directory = makeDirectory();
    TopoSlot slot = new TopoSlot(key, number, directory.getPath() + "/slot-" + number);
    slot.directory = directory;
    ProcessBuilder builder = new ProcessBuilder(new String[] {parts[1], "-P", "-c", parts[2]});
    builder.redirectOutput(ProcessBuilder.Redirect.INHERIT);
    builder.redirectError(ProcessBuilder.Redirect.INHERIT);
    try {
      slot.process = builder.start();
      byte[] text = (parts[0] + "\\n" + token + "\\n" + number + "\\n" + slot.path)
          .getBytes(StandardCharsets.UTF_8);
      ByteBuffer said = ByteBuffer.allocate(8 + text.length).order(ByteOrder.LITTLE_ENDIAN);
      said.putLong((long) text.length).put(text);
      slot.process.getOutputStream().write(said.array());
      slot.process.getOutputStream().flush(); // and it stays open, for as long as this lives
    } catch (IOException e) {
      slot.end();
      throw e;
    }
    return slot;
  }
  /** A path to a socket has to be short. */
  static File makeDirectory() throws IOException {
    File usual = new File(System.getProperty("java.io.tmpdir"));
    File parent = usual.getPath().length() > 60 ? new File("/tmp") : usual;
    return Files.createTempDirectory(parent.toPath(), "topo-slots-", new FileAttribute[0]).toFile();
  }
  /** Throws if the process has ended. */
  void check() throws IOException {
    if (process != null && !process.isAlive()) throw lost();
  }
  IOException lost() {
    String said = "topo: the process of slot " + number;
    if (process == null) return new IOException(said + " is gone");
    try {
      process.waitFor(1L, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
    if (process.isAlive()) return new IOException(said + " is gone");
    String words = read(".words");
    if (words.length() > 0) return new IOException(said + " did not start: " + words + " [topo]");
    int code = process.exitValue();
    said += code > 128 ? " was ended by signal " + (code - 128) : " ended with exit code " + code;
    String doing = read(".doing");
    if (doing.length() > 0) said += " while " + doing + " was executed";
    return new IOException(said + " [topo]");
  }
  String read(String kind) {
    try {
      byte[] data = Files.readAllBytes(new File(path + kind).toPath());
      return new String(data, StandardCharsets.UTF_8).replace((char) 0, ' ').trim();
    } catch (IOException e) {
      return "";
    }
  }
  void end() {
    if (process != null) process.destroyForcibly();
    File[] left = directory.listFiles();
    for (int i = 0; left != null && i < left.length; i++) left[i].delete();
    directory.delete();
  }
}

class TopoSlots {
  static final HashMap running = new HashMap();
  static TopoSlot enter(String home, String token, int number) throws IOException {
    if (home.startsWith("/")) return new TopoSlot("", number, home + "/slot-" + number);
    synchronized (running) {
      String key = token + "/" + number;
      TopoSlot slot = (TopoSlot) running.get(key);
      if (slot == null) {
        slot = TopoSlot.start(key, home, token, number);
        running.put(key, slot);
      }
      slot.users++;
      return slot;
    }
  }
  static void leave(TopoSlot slot) {
    if (slot.process == null) return;
    synchronized (running) {
      if (--slot.users > 0) return;
      running.remove(slot.key);
      slot.end();
    }
  }
}
"""
