package topo;

import java.io.File;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * The files of the machine. Permissions are set by a system call, where Hadoop's own class forks a
 * process. Below some directories, a file is on the disk when it is closed, and its name when it has
 * been renamed to it; below others, what is made is for this user alone.
 */
public class LocalFiles extends RawLocalFileSystem {
  private final Set<String> synced = ConcurrentHashMap.newKeySet();
  private final Set<String> unshared = ConcurrentHashMap.newKeySet();

  @Override
  public void setPermission(Path path, FsPermission mode) throws IOException {
    String symbols = mode.toString().substring(0, 9).replace('t', 'x').replace('T', '-');
    if (isBelow(unshared, pathToFile(path))) symbols = symbols.substring(0, 3) + "------";
    Files.setPosixFilePermissions(
        pathToFile(path).toPath(), PosixFilePermissions.fromString(symbols));
  }

  public void syncBelow(String directory) {
    synced.add(directory);
  }

  public void keepPrivate(String directory) {
    unshared.add(directory);
  }

  /** Have a file or the names in a directory on the disk. */
  public void force(File file) throws IOException {
    try (FileChannel channel = FileChannel.open(file.toPath(), StandardOpenOption.READ)) {
      channel.force(true);
    }
  }

  @Override
  protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission mode)
      throws IOException {
    OutputStream out = super.createOutputStreamWithMode(path, append, mode);
    File file = pathToFile(path);
    return isBelow(synced, file) ? new Synced(file, out) : out;
  }

  @Override
  public boolean rename(Path from, Path to) throws IOException {
    boolean isDone = super.rename(from, to);
    File file = pathToFile(to);
    if (isDone && isBelow(synced, file)) force(file.getParentFile());
    return isDone;
  }

  @Override
  protected boolean mkOneDirWithMode(Path path, File directory, FsPermission mode)
      throws IOException {
    boolean isMade = super.mkOneDirWithMode(path, directory, mode);
    if (isMade && isBelow(synced, directory)) force(directory.getParentFile());
    return isMade;
  }

  private static boolean isBelow(Set<String> directories, File file) {
    String name = file.getPath();
    for (String directory : directories) {
      if (name.equals(directory) || name.startsWith(directory + "/")) return true;
    }
    return false;
  }

  private final class Synced extends FilterOutputStream {
    private final File file;
    private boolean isClosed;

    Synced(File file, OutputStream out) {
      super(out);
      this.file = file;
    }

    @Override
    public void write(byte[] bytes, int start, int count) throws IOException {
      out.write(bytes, start, count);
    }

    @Override
    public void close() throws IOException {
      if (isClosed) return;
      isClosed = true;
      out.close();
      if (file.exists()) force(file);
    }
  }
}
