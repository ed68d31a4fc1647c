"""The user's modules in a process that cannot import them, or not as they are here."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from topo.shipping.pickling import is_users_own, pickle_to_travel

MODULES = {
    "shop/__init__.py": "",
    "shop/fruit.py": "class Plum:\n    pass\n\n\ndef ripe():\n    return Plum()\n",
    "shop/late.py": "from shop.fruit import Plum, ripe\n\n\ndef made():\n    return ripe()\n",
}
# A class that has come by value, as components and what they emit do.
CARRY = """
import pickle, sys
from topo.shipping.pickling import UserClass, install_user_classes, pickle_to_travel
made = type("Plum", (), {"__module__": "shop.fruit"})
import cloudpickle
install_user_classes((UserClass("shop.fruit", "Plum", cloudpickle.dumps(made)),))
from shop.fruit import Plum
"""


def run(code: str, *path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [*sys.path[:1], *path]))}
    command = [sys.executable, "-c", CARRY + code]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root)
    return done.stdout.strip() or done.stderr


def bring(directory: Path) -> Path:
    for name, text in MODULES.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")
    return directory


def test_values_of_a_carried_class_pickle_by_name() -> None:
    code = "print(type(pickle.loads(pickle.dumps(Plum()))) is Plum, b'shop' in pickle.dumps(Plum))"
    assert run(code) == "True True"


def test_what_did_not_come_is_missed_by_name() -> None:
    assert "cannot import name 'ripe' from 'shop.fruit'" in run("from shop.fruit import ripe")
    assert "bring it by --py-files" in run("import shop.fruit as f; f.ripe")
    assert "No module named 'shop.late'" in run("import shop.late")


def test_a_module_that_is_here_gives_the_rest_and_makes_the_carried_class(tmp_path: Path) -> None:
    code = "from shop.late import made; print(type(made()) is Plum)"
    assert run(code, bring(tmp_path)) == "True"


READS = """
import importlib.resources, pkgutil
print(importlib.resources.files("shop").joinpath("prices.txt").read_text())
print(importlib.resources.files("shop").joinpath("more/prices.txt").read_text())
print(pkgutil.get_data("shop", "prices.txt").decode())
"""


def test_the_data_of_a_package_are_beside_its_file(tmp_path: Path) -> None:
    (bring(tmp_path) / "shop" / "more").mkdir()
    for place in ("prices.txt", "more/prices.txt"):
        (tmp_path / "shop" / place).write_text(f"plum 3 {place}")
    lines = ["plum 3 prices.txt", "plum 3 more/prices.txt", "plum 3 prices.txt"]
    assert run(READS, tmp_path).splitlines() == lines


def test_data_of_a_package_that_is_not_here_are_missed_by_its_name() -> None:
    assert "the files of package 'shop' are not on this machine" in run(READS)


def module(name: str, origin: Path) -> types.ModuleType:
    made = types.ModuleType(name)
    made.__spec__ = ModuleSpec(name, None, origin=str(origin))
    return made


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("flask", ".local/lib/python3.13/site-packages/flask/__init__.py"),
        ("numpy.core", "lib/python3/dist-packages/numpy/core.py"),
        ("six", "vendored/six.py"),
        ("google.protobuf.any", "vendored/google/protobuf/any.py"),
        ("click", "vendored/click/__init__.py"),
    ],
)
def test_an_installed_package_is_not_the_users_wherever_it_lies(
    name: str, file: str, tmp_path: Path
) -> None:
    (tmp_path / "vendored" / "six-1.0.dist-info").mkdir(parents=True)
    assert not is_users_own(module(name, tmp_path / file))


@pytest.mark.parametrize("file", ["shop/fruit.py", "site-packages.py", "vendored/mine/job.py"])
def test_what_lies_beside_installed_packages_is_the_users(file: str, tmp_path: Path) -> None:
    (tmp_path / "vendored" / "six-1.0.dist-info").mkdir(parents=True)
    name = "shop.fruit" if file.startswith("shop") else "job"
    assert is_users_own(module(name, tmp_path / file))


def test_a_directory_whose_name_begins_as_pythons_does_is_the_users() -> None:
    stdlib = os.path.dirname(os.__file__)
    assert not is_users_own(module("abc", Path(stdlib, "abc.py")))
    assert is_users_own(module("job", Path(f"{stdlib}-jobs", "job.py")))


def test_modules_travel_by_value_from_when_they_are_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether one is the user's is not asked again for each component, unless it changes."""
    name = "plums_of_mine"
    by_name, by_value = b"\x8c\x0dplums_of_mine\x94\x8c\x04Plum\x94\x93", b"_make_skeleton_class"

    def travels(path: str | None) -> bytes:
        module = types.ModuleType(name)
        exec("class Plum:\n    pass\n", vars(module))
        monkeypatch.setitem(sys.modules, name, module)
        if path is not None:
            module.__file__ = path
        return pickle_to_travel(module.Plum)

    installed = str(Path(pytest.__file__).with_name("plums_of_mine.py"))
    for _ in range(2):
        assert by_name in travels(installed)
        assert by_value in travels(str(tmp_path / "plums.py"))
    assert by_name in travels(None)
    sys.modules[name].__file__ = str(tmp_path / "plums.py")
    assert by_value in pickle_to_travel(sys.modules[name].Plum)
