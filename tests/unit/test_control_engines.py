"""What is brought to Spark's workers."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

from tests.unit.test_control_registry import make
from topo.control import engines
from topo.control.engines import pack_topo, shipping
from topo.control.registry import Registry


def test_on_this_machine_only_the_users_files(tmp_path: Path) -> None:
    assert shipping("local[*]", (), tmp_path) == {}
    assert shipping("local[2]", ("a.py", "b.zip"), tmp_path) == {
        "spark.files": "a.py,b.zip",
        "spark.submit.pyFiles": "a.py,b.zip",
    }
    assert list(tmp_path.iterdir()) == []


def test_on_a_cluster_topo_comes_along(tmp_path: Path) -> None:
    packed = str(tmp_path / "topo.zip")
    assert shipping("spark://m1:7077", ("a.py",), tmp_path) == {
        "spark.files": f"a.py,{packed}",
        "spark.submit.pyFiles": f"a.py,{packed}",
    }


def test_the_archive_is_imported_from(tmp_path: Path) -> None:
    archive = pack_topo(tmp_path)
    assert "topo/_pb/acker_pb2.py" in zipfile.ZipFile(archive).namelist()
    code = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "import topo.task.host, topo.engine.spark.execution\nprint(topo.__file__)"
    )
    # -S -I would hide what topo needs; that it is this topo is what the path says.
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.stdout.startswith(str(archive)), done.stderr


def test_the_users_own_settings_are_kept(tmp_path: Path) -> None:
    run = make(Registry(tmp_path), conf={"spark.files": "mine.txt"})
    submission = replace(run.submission, py_files=("a.py",), archives=("env.tar.gz#env",))
    assert engines._shipping(submission) == {
        "spark.files": "mine.txt,a.py",
        "spark.submit.pyFiles": "a.py",
        "spark.archives": "env.tar.gz#env",
    }
