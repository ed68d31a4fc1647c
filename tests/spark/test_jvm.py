"""topo's patches of its own JVM are in force, and never a reason to fail."""

from __future__ import annotations

import ipaddress
import os
import stat
from pathlib import Path
from typing import Any

import psutil
import pytest

from topo.engine.spark.jvm import speedups as jvm
from topo.engine.spark.jvm.local_files import keep_private
from topo.engine.spark.jvm.session import start_session

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def context() -> Any:
    return start_session("local[*]", {}).sparkContext


def test_files_get_their_mode_without_a_process_and_stand_alone(
    context: Any, tmp_path: Path
) -> None:
    spark = context._jvm
    files = spark.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    path = spark.org.apache.hadoop.fs.Path
    files.create(path(str(tmp_path / "offsets" / "0"))).close()
    assert [found.name for found in (tmp_path / "offsets").iterdir()] == ["0"]
    modes = spark.org.apache.hadoop.fs.permission.FsPermission
    for mode in (0o600, 0o644, 0o755):
        files.setPermission(path(str(tmp_path / "offsets" / "0")), modes(f"{mode:o}"))
        assert stat.S_IMODE((tmp_path / "offsets" / "0").stat().st_mode) == mode
    # Where Hadoop's own class does it, a process does.
    assert files.getRawFileSystem().getClass().getSimpleName() == "LocalFiles"


def test_files_of_a_checkpoint_are_its_users_alone(context: Any, tmp_path: Path) -> None:
    spark = context._jvm
    files = spark.org.apache.hadoop.fs.FileSystem.getLocal(context._jsc.hadoopConfiguration())
    path = spark.org.apache.hadoop.fs.Path
    keep_private(context, str(tmp_path / "mine"))
    for name in ("mine/offsets", "minefield/offsets"):
        files.create(path(str(tmp_path / name / "0"))).close()
    assert stat.S_IMODE((tmp_path / "mine" / "offsets").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "mine" / "offsets" / "0").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "minefield" / "offsets").stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "minefield" / "offsets" / "0").stat().st_mode) == 0o644


def test_settings_travel_without_their_origins(context: Any) -> None:
    hadoop = context._jsc.hadoopConfiguration()
    assert hadoop.get("io.file.buffer.size")
    assert hadoop.getPropertySources("io.file.buffer.size") is None


def test_threads_without_a_session_generate_no_code(context: Any) -> None:
    settings = context._jvm.org.apache.spark.sql.internal.SQLConf.getFallbackConf()
    assert settings.getConfString("spark.sql.codegen.factoryMode") == "NO_CODEGEN"


def test_the_class_path_is_the_same_at_every_start(context: Any) -> None:
    """Java refuses an archive of classes that was recorded with another one."""
    entries = context._jvm.java.lang.System.getProperty("java.class.path").split(os.pathsep)
    own = context._jvm.java.lang.System.getProperty("java.io.tmpdir")  # another in each run
    assert len(entries) > 100
    assert [entry for entry in entries if entry.startswith(own)] == []


def test_nobody_elses_machine_reaches_it(context: Any) -> None:
    jvm = psutil.Process(context._gateway.proc.pid)
    listening = [each for each in jvm.net_connections("inet") if each.status == psutil.CONN_LISTEN]
    assert len(listening) >= 3
    for each in listening:
        assert ipaddress.ip_address(each.laddr.ip.removeprefix("::ffff:")).is_loopback, each.laddr
    assert context.getConf().get("spark.authenticate") == "true"


def test_its_command_line_has_no_settings(context: Any) -> None:
    jvm = psutil.Process(context._gateway.proc.pid)
    assert [part for part in jvm.cmdline() if part.startswith(("--conf", "spark."))] == []


def test_a_spark_that_has_nothing_of_the_kind_runs_as_it_would(
    context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def _change_what_is_not_there(_: Any, spark: Any) -> None:
        spark.java.lang.Class.forName("org.apache.hadoop.fs.FilterFileSystem").getDeclaredField("x")

    with caplog.at_level("INFO", "topo.spark"):
        jvm._where_possible(_change_what_is_not_there, context)
    (record,) = caplog.records
    assert record.message.startswith("Spark runs without change_what_is_not_there: ")
    assert "NoSuchFieldException" in record.message
    assert "\n" not in record.message
