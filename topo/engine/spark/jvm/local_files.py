"""The class by which the JVM of a local Spark writes local files, checkpoints above all.

Hadoop's own class forks a `chmod` for each file that it makes, 6 in a batch of two state levels
over two slots, of 3 to 7 ms each; and it never syncs one. A process that is killed loses nothing by
that, but a machine that loses its power does: what a batch wrote in the last seconds before may be
empty files. Below directories that were named by `sync_below`, a file is on the disk when it is
closed, and its name when it has been renamed to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from topo.engine.spark.jvm.compiler import compile_classes, define, is_defined
from topo.errors import EngineError

if TYPE_CHECKING:
    from pyspark import SparkContext

CLASS = "TopoLocalFiles"
# Spark compiles the class with the compiler for its own generated code, which knows no generics.
SOURCE = f"""
import java.io.File;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Iterator;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class {CLASS} extends RawLocalFileSystem {{
  private final ConcurrentHashMap synced = new ConcurrentHashMap();

  public void setPermission(Path path, FsPermission mode) throws IOException {{
    String symbols = mode.toString().substring(0, 9).replace('t', 'x').replace('T', '-');
    Files.setPosixFilePermissions(
        pathToFile(path).toPath(), PosixFilePermissions.fromString(symbols));
  }}

  public void syncBelow(String directory) {{
    synced.put(directory, directory);
  }}

  public void force(File file) throws IOException {{
    FileChannel channel = FileChannel.open(
        file.toPath(), new OpenOption[] {{StandardOpenOption.READ}});
    try {{
      channel.force(true);
    }} finally {{
      channel.close();
    }}
  }}

  protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission mode)
      throws IOException {{
    OutputStream out = super.createOutputStreamWithMode(path, append, mode);
    File file = pathToFile(path);
    return isSynced(file) ? new Synced(this, file, out) : out;
  }}

  public boolean rename(Path from, Path to) throws IOException {{
    boolean done = super.rename(from, to);
    File file = pathToFile(to);
    if (done && isSynced(file)) force(file.getParentFile());
    return done;
  }}

  protected boolean mkOneDirWithMode(Path path, File directory, FsPermission mode)
      throws IOException {{
    boolean made = super.mkOneDirWithMode(path, directory, mode);
    if (made && isSynced(directory)) force(directory.getParentFile());
    return made;
  }}

  private boolean isSynced(File file) {{
    if (synced.isEmpty()) return false;
    String name = file.getPath();
    for (Iterator each = synced.keySet().iterator(); each.hasNext();) {{
      String directory = (String) each.next();
      if (name.equals(directory) || name.startsWith(directory + "/")) return true;
    }}
    return false;
  }}

  public static final class Synced extends FilterOutputStream {{
    private final {CLASS} files;
    private final File file;
    private boolean closed;

    public Synced({CLASS} files, File file, OutputStream out) {{
      super(out);
      this.files = files;
      this.file = file;
    }}

    public void write(byte[] bytes, int start, int count) throws IOException {{
      out.write(bytes, start, count);
    }}

    public void close() throws IOException {{
      if (closed) return;
      closed = true;
      out.close();
      if (file.exists()) files.force(file);
    }}
  }}
}}
"""


def install(context: SparkContext) -> None:
    """Put the class in the place of Hadoop's."""
    if not is_defined(context, CLASS):
        define(context, compile_classes(context, SOURCE), CLASS)
    jvm: Any = context._jvm
    replace_local_files(context, jvm.java.lang.Class.forName(CLASS).newInstance())


def replace_local_files(context: SparkContext, raw: Any) -> None:
    """Have every local file written by this object from now on."""
    jvm: Any = context._jvm
    raw.initialize(jvm.java.net.URI("file:///"), _hadoop(context))
    of = jvm.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem")
    field = of.getDeclaredField("fs")
    field.setAccessible(True)
    field.set(local_files(context), raw)


def sync_below(context: SparkContext, directory: str, *, is_required: bool = True) -> None:
    """Have the files below a directory synced from now on.

    Raises EngineError if that cannot be and is required.
    """
    raw = local_files(context).getRawFileSystem()
    if _has_method(raw, "syncBelow"):
        raw.syncBelow(directory)
    elif is_required:
        raise EngineError(
            "this process's Spark cannot sync the files of a checkpoint",
            hint="let topo start Spark, or take topology.checkpoint.sync out",
        )


def _has_method(raw: Any, method: str) -> bool:
    """Return True if an object of the JVM has a method of this name."""
    return any(each.getName() == method for each in raw.getClass().getMethods())


def local_files(context: SparkContext) -> Any:
    """Return the object that Spark gets from Hadoop's cache for every local file."""
    jvm: Any = context._jvm
    return jvm.org.apache.hadoop.fs.FileSystem.getLocal(_hadoop(context))


def _hadoop(context: SparkContext) -> Any:
    jsc: Any = context._jsc
    return jsc.hadoopConfiguration()
