"""The power goes: what was written and not synced is lost, and every acked message is still there.

The JVM's file class is replaced by one that keeps a second copy of the checkpoint, in which a file
has what was synced of it, and a name is there once its directory was synced.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.doubles import Total
from tests.spark.doubles import LONGEST_SECS, Endless, wait_until
from tests.wiring import line
from topo import LocalCluster
from topo.engine.spark.jvm.local_files import local_files, replace_local_files
from topo.engine.spark.jvm.session import start_session

pytestmark = pytest.mark.spark

# The disk of a machine that loses its power at once: a name of which the content was not synced
# may well be there, empty.
DISK = """
import java.io.File;
import java.io.IOException;
import java.nio.file.CopyOption;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.Iterator;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.fs.Path;
import topo.LocalFiles;

public final class Disk extends LocalFiles {
  private String from = "/nowhere";
  private String disk = "/nowhere";
  private final ConcurrentHashMap renamed = new ConcurrentHashMap();

  public void mirror(String from, String disk) {
    this.from = from;
    this.disk = disk;
  }

  private boolean has(File file) {
    return file.getPath().startsWith(from);
  }

  private java.nio.file.Path there(File file) {
    return new File(disk + file.getPath().substring(from.length())).toPath();
  }

  private void put(File file) throws IOException {
    Files.createDirectories(there(file).getParent());
    Files.copy(file.toPath(), there(file),
        new CopyOption[] {StandardCopyOption.REPLACE_EXISTING});
  }

  public synchronized void force(File file) throws IOException {
    super.force(file);
    if (!has(file)) return;
    if (file.isFile()) {
      put(file);
      return;
    }
    for (Iterator each = renamed.keySet().iterator(); each.hasNext();) {
      File to = (File) each.next();
      if (!to.getParentFile().equals(file)) continue;
      File before = (File) renamed.remove(to);
      Files.createDirectories(there(to).getParent());
      Files.move(there(before), there(to),
          new CopyOption[] {StandardCopyOption.REPLACE_EXISTING});
    }
  }

  public boolean rename(Path source, Path target) throws IOException {
    File before = pathToFile(source);
    File to = pathToFile(target);
    if (has(to)) {
      synchronized (this) {
        if (Files.exists(there(before), new java.nio.file.LinkOption[0])) {
          renamed.put(to, before);
        } else {
          Files.createDirectories(there(to).getParent());
          Files.write(there(to), new byte[0], new java.nio.file.OpenOption[0]);
        }
      }
    }
    return super.rename(source, target);
  }

  public boolean delete(Path path, boolean recursive) throws IOException {
    File file = pathToFile(path);
    if (has(file)) Files.deleteIfExists(there(file));
    return super.delete(path, recursive);
  }
}
"""


@pytest.fixture(scope="module")
def disk() -> Iterator[Any]:
    context = start_session("local[*]", {}).sparkContext
    jvm: Any = context._jvm
    before = local_files(context).getRawFileSystem()
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(before.getClass().getClassLoader())
    compiler.cook(DISK)
    made = compiler.getClassLoader().loadClass("Disk").newInstance()
    replace_local_files(context, made)
    yield made
    replace_local_files(context, before)


class Acked(Endless):
    """Endless numbers; it knows how many were acked."""

    def open(self, conf: Any, context: Any, collector: Any) -> None:
        super().open(conf, context, collector)
        self.acked = 0

    def ack(self, msg_id: Any) -> None:
        self.acked += 1


@pytest.mark.parametrize("sync", [True, False])
def test_what_was_acked_before_the_power_went_is_there_after_it(
    cluster: LocalCluster, disk: Any, tmp_path: Path, sync: bool
) -> None:
    place, after = tmp_path / "checkpoint", tmp_path / "disk"
    disk.mirror(str(place), str(after))
    conf = {
        "topology.workers": 1,
        "topology.checkpoint.dir": str(place),
        "topology.checkpoint.sync": sync,
        "topology.max.spout.pending": 20,
    }
    run = cluster.submit_topology("t", line(Acked(), Total()), conf, capture=["b1"])
    wait_until(lambda: run.stats().components["s"].acked > 0, "an ack")
    wait_until((place / "commits" / "4").exists, "five batches")
    run.stop()
    acked = run.stats().components["s"].acked
    empty = [path for path in after.rglob("*") if path.is_file() and not path.stat().st_size]
    if not sync:
        assert len(empty) > 10, "without it, next to nothing is on the disk"
        return
    assert empty == []
    again = {**conf, "topology.checkpoint.dir": str(after)}
    run = cluster.submit_topology("t", line(Acked(), Total()), again, capture=["b1"])
    wait_until(lambda: bool(run.tuples("b1")), "a batch")
    assert run.tuples("b1")[0][0] > acked
    run.kill()
    assert run.wait(LONGEST_SECS)
