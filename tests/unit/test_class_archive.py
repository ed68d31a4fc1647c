"""The archive of Spark's classes: where it is, when it is used, made and dropped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from topo.engine.spark.jvm import class_archive
from topo.engine.spark.jvm.class_archive import CACHE, ClassArchive, cache_directory, find_archive
from topo.engine.spark.jvm.java import Java


@pytest.fixture
def java(tmp_path: Path) -> Java:
    home = tmp_path / "java"
    (home / "lib" / "server").mkdir(parents=True)
    (home / "lib" / "server" / "classes.jsa").touch()
    return Java(home, "17.0.1", "PATH", True)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_cache_is_made_for_this_user_alone(tmp_path: Path) -> None:
    assert cache_directory({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "topo"
    assert (tmp_path / "topo").stat().st_mode & 0o777 == 0o700
    assert cache_directory({CACHE: str(tmp_path / "a" / "b")}) == tmp_path / "a" / "b"


def test_there_is_no_cache_where_others_write_or_nobody_can(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    (tmp_path / "file").touch()
    assert cache_directory({CACHE: str(tmp_path / "shared")}) is None
    assert cache_directory({CACHE: str(tmp_path / "file")}) is None
    assert cache_directory({CACHE: str(tmp_path / "file" / "below")}) is None
    assert cache_directory({CACHE: ""}) is None


def test_an_archive_belongs_to_one_java_and_class_path(cache: Path, java: Java) -> None:
    found = find_archive(java, {})
    assert found is not None
    found.path.touch()
    assert found.options == [f"-XX:SharedArchiveFile={found.path}"]
    again = find_archive(java, {"spark.app.name": "other"})
    assert again is not None
    assert again.options == found.options
    for other in (
        find_archive(java, {"spark.driver.extraClassPath": "/mine.jar"}),
        find_archive(Java(java.home, "17.0.2", "PATH", True), {}),
    ):
        assert other is not None
        assert other.options == []


def test_a_draft_is_used_when_java_has_finished_it(cache: Path, java: Java) -> None:
    archive = find_archive(java, {})
    assert archive is not None
    assert not archive.adopt_draft()
    archive.draft.touch()
    assert archive.options == []
    assert archive.adopt_draft()
    assert archive.exists


def test_an_archive_with_which_the_jvm_did_not_start_is_dropped(cache: Path, java: Java) -> None:
    archive = find_archive(java, {})
    assert archive is not None
    archive.path.touch()
    archive.discard()
    assert not archive.exists


def test_a_java_without_an_archive_of_its_own_gets_none(cache: Path, java: Java) -> None:
    (java.home / "lib" / "server" / "classes.jsa").unlink()
    assert not ClassArchive(cache_directory() or cache, java, {}).is_possible


def test_archives_that_nobody_uses_are_removed(cache: Path, java: Java) -> None:
    cache.mkdir()
    (cache / "spark-old.jsa").touch()
    os.utime(cache / "spark-old.jsa", (0, 0))
    (cache / "spark-new.jsa").touch()
    class_archive.remove_unused(cache)
    assert [file.name for file in cache.iterdir()] == ["spark-new.jsa"]
