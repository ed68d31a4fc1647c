"""A checkpoint that was moved: the paths that Spark wrote into it lead to where it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from topo.storage.moving import move_local, moved_here

METADATA = {
    "operatorInfo": {"operatorId": 0, "operatorName": "transformWithStateInPandasExec"},
    "stateStoreInfo": [
        {
            "storeName": "default",
            "numPartitions": 2,
            "stateSchemaFilePaths": ["file:/old/state/place/state/0/_stateSchema/default/0_e6"],
        }
    ],
    "operatorPropertiesJson": '{"timeMode":"NoTime","note":"ä"}',
}


def text_of(metadata: object) -> str:
    return f"v2\n{json.dumps(metadata, separators=(',', ':'), ensure_ascii=False)}"


def test_paths_begin_with_where_it_is() -> None:
    moved = moved_here(text_of(METADATA), "hdfs://n1/new")
    assert moved is not None
    expected = text_of(METADATA).replace("file:/old/state/place", "hdfs://n1/new")
    assert moved == expected
    assert moved_here(moved, "hdfs://n1/new") is None


@pytest.mark.parametrize(
    "text",
    ["", "v2", "v2\n", "v2\n{", "v2\n[]", "v2\n{}", 'v2\n{"stateStoreInfo":3}']
    + [text_of({"stateStoreInfo": stores}) for stores in ([None], [{"stateSchemaFilePaths": 3}])]
    + [text_of({"stateStoreInfo": [{"stateSchemaFilePaths": [None]}]})],
)
def test_what_spark_did_not_write_is_left_to_spark(text: str) -> None:
    assert moved_here(text, "file:/new") is None


def test_every_operator_of_a_directory(tmp_path: Path) -> None:
    for operator in range(3):
        place = tmp_path / "state" / str(operator) / "_metadata" / "v2"
        place.mkdir(parents=True)
        (place / "0").write_text(text_of(METADATA))
        (place / ".0.crc").write_text("checksum of the old text")
    (tmp_path / "state" / "2" / "_metadata" / "v2" / "0").write_bytes(b"v2\n\xff")
    assert move_local(tmp_path, f"file:{tmp_path}")
    assert not move_local(tmp_path, f"file:{tmp_path}")
    for operator in range(2):
        place = tmp_path / "state" / str(operator) / "_metadata" / "v2"
        assert [path.name for path in place.iterdir()] == ["0"]
        assert f"file:{tmp_path}/state/0/_stateSchema" in (place / "0").read_text()
