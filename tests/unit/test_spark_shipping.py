"""The way of topo and its Python to workers that have neither at the driver's path."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from topo.engine.spark.driver.shipment import Shipment, pack_topo, workers_python
from topo.engine.spark.jvm.session import core_settings


class Context:
    """The part of a SparkContext that a shipment uses."""

    def __init__(self) -> None:
        self.environment: dict[str, str] = {}
        self.files: list[Path] = []

    def addPyFile(self, path: str) -> None:
        sys.path.insert(1, path)
        self.files.append(Path(path))

    def addFile(self, path: str) -> None:
        self.files.append(Path(path))


def sent(shipment: Shipment) -> Context:
    context: Any = Context()
    shipment.send(context)
    found: Context = context
    return found


def run(*command: str, **options: Any) -> str:
    done: Any = subprocess.run(command, capture_output=True, check=False, **options)
    return str((done.stdout.strip() or done.stderr).decode())


def test_the_archive_is_imported_from(tmp_path: Path) -> None:
    archive = pack_topo(tmp_path)
    assert "topo/_pb/acker_pb2.py" in zipfile.ZipFile(archive).namelist()
    code = "import topo.runtime.slot, topo.engine.spark.worker.slot_runner; print(topo.__file__)"
    where = run(
        sys.executable, "-c", code, cwd=tmp_path, env={**os.environ, "PYTHONPATH": archive.name}
    )
    assert where.endswith(f"{archive.name}/topo/__init__.py")


def test_a_topo_that_came_as_an_archive_is_sent_on(tmp_path: Path) -> None:
    """As `spark-submit --py-files topo.zip` has it."""
    archive = pack_topo(tmp_path)
    (tmp_path / "again").mkdir()
    code = (
        "import sys; from pathlib import Path; "
        "from topo.engine.spark.driver.shipment import pack_topo; pack_topo(Path('again')); "
        "from topo.engine.spark.driver.nursery import _file_of_handover; "
        "print(Path(_file_of_handover('again')).is_file(), sys.modules['topo'].__file__)"
    )
    path = {**os.environ, "PYTHONPATH": archive.name}
    said = run(sys.executable, "-P", "-c", code, cwd=tmp_path, env=path)
    assert said == f"True {tmp_path / 'topo.zip'}/topo/__init__.py"
    first, second = (
        {name: whole.read(name) for name in whole.namelist()}
        for whole in map(zipfile.ZipFile, (archive, tmp_path / "again" / archive.name))
    )
    assert first == second


def test_the_daemon_in_it_begins_without_topo(tmp_path: Path) -> None:
    code = "import topo_daemon, sys; print('topo' in sys.modules)"
    path = str(pack_topo(tmp_path))
    assert run(sys.executable, "-P", "-c", code, env={**os.environ, "PYTHONPATH": path}) == "False"


def test_a_python_of_this_machine_is_run_as_it_is(tmp_path: Path) -> None:
    shipment = Shipment(sys.executable, tmp_path)
    assert shipment.python == sys.executable
    assert shipment.jvm_options == {}
    path = list(sys.path)
    context = sent(shipment)
    assert [file.name for file in context.files] == ["topo.zip"]
    assert context.environment == {"PYTHONPATH": "topo.zip"}
    assert sys.path == path


@pytest.mark.parametrize("theirs", ["./env/bin/python", "/opt/their own/python"])
def test_a_python_that_only_workers_have_is_run_by_a_script(theirs: str, tmp_path: Path) -> None:
    shipment = Shipment(theirs, tmp_path)
    version = "import sys; print(sys.executable)"
    ours = run(shipment.python, "-c", version, **shipment.jvm_options)
    assert ours == sys.executable
    script = sent(shipment).files[1]
    assert script.name == os.path.basename(shipment.python)
    assert os.access(script, os.X_OK)
    assert f"there is no Python at {theirs}" in run(f"./{script.name}", cwd=script.parent)


def test_which_python_workers_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert workers_python({}) == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/usr/bin/python3")
    assert workers_python({}) == "/usr/bin/python3"
    assert workers_python({"spark.pyspark.python": "./env/bin/python"}) == "./env/bin/python"


def test_a_topology_takes_no_more_of_a_cluster_than_it_has_slots() -> None:
    def settings(master: str, **conf: Any) -> dict[str, str]:
        return core_settings(master, {key.replace("_", "."): at for key, at in conf.items()})

    assert "spark.cores.max" not in settings("spark://m1:7077")
    assert settings("spark://m1:7077", topology_workers=3)["spark.cores.max"] == "3"
    assert settings("yarn", topology_workers=3)["spark.executor.instances"] == "3"
    fewer = settings("yarn", topology_workers=3, spark_executor_cores=2)
    assert fewer["spark.executor.instances"] == "2"
    own = settings("spark://m1:7077", topology_workers=3, spark_cores_max=9)
    assert own["spark.cores.max"] == "9"
