"""Files in YAML: their texts, their placeholders, their objects, and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import click.testing
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topo.cli.root import root
from topo.cli.target import load_target
from topo.errors import ConfigError, InvalidTopologyError, MissingExtra, TargetError
from topo.flux import load
from topo.flux.build import load_file
from topo.flux.substitution import properties_of
from topo.testing import complete_topology

EXAMPLE = Path(__file__).parents[2] / "examples" / "flux_word_count.yaml"
SPOUT = "spouts: [{id: s, className: topo.FromList, constructorArgs: [[1], n]}]\n"


def write(directory: Path, text: str, name: str = "t.yaml") -> Path:
    file = directory / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def problems_of(file: Path) -> list[tuple[str, str]]:
    with pytest.raises(InvalidTopologyError) as caught:
        load_file(file)
    return [(problem.code, problem.where) for problem in caught.value.problems]


def test_the_example_counts_words() -> None:
    loaded = load_file(EXAMPLE, filters=[EXAMPLE.with_suffix(".properties")])
    assert loaded.name == "word-count"
    counts: dict[str, int] = {}
    for word, count in complete_topology(loaded.topology).tuples("count"):
        counts[word] = max(count, counts.get(word, 0))
    assert counts["the"] == 3
    assert counts["apple"] == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb: 2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("# no\n! no\n\n  a = x y  \n", {"a": "x y  "}),
        ("a = one, \\\n    two\n", {"a": "one, two"}),
        ("a\\ b=c\\=d\nk\n", {"a b": "c=d", "k": ""}),
        ("u=\\u00e9\\t!\\\\\n", {"u": "é\t!\\"}),
    ],
)
def test_properties_are_javas(text: str, expected: dict[str, str]) -> None:
    assert properties_of(text) == expected


KEYS = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1)


@given(st.dictionaries(KEYS, st.text(st.characters(exclude_categories=["C", "Z"]))))
def test_properties_without_special_characters_come_back(values: dict[str, str]) -> None:
    lines = "".join(f"{k}={v.replace(chr(92), chr(92) * 2)}\n" for k, v in values.items())
    assert properties_of(lines) == values


def test_a_value_cannot_become_yaml(tmp_path: Path) -> None:
    file = write(tmp_path, f"name: ${{x}}\nconfig: {{k: '${{x}}, l: 2'}}\n{SPOUT}")
    loaded = load_file(file, {"x": "n, evil: 1"})
    assert loaded.name == "n, evil: 1"
    assert loaded.conf == {"k": "n, evil: 1, l: 2"}


def test_places_stay_right_beside_placeholders(tmp_path: Path) -> None:
    file = write(tmp_path, f"config: {{k: '${{long.name.of.one}}', topology.debug: 3}}\n{SPOUT}")
    with pytest.raises(
        InvalidTopologyError, match=r"t.yaml:1:36: topology.debug must be"
    ) as caught:
        load_file(file, {"long.name.of.one": "x"})
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ("yaml", "t.yaml:1:1")),
        ("a: [1, 2\n", ("yaml", "t.yaml:2:1")),
        ("- a\n", ("kind", "t.yaml:1:1")),
        ("name: n\nname: m\n" + SPOUT, ("duplicate-key", "t.yaml:2:1")),
        ("name: n\n", ("no-spout", "t.yaml:1:1")),
        ("spouts: {}\n", ("kind", "t.yaml:1:1")),
        ("spouts: [{className: topo.FromList, constructorArgs: [[1], n]}]\n",
         ("missing-key", "t.yaml:1:10")),
        ("spouts: [{id: s}]\n", ("missing-key", "t.yaml:1:10")),
        ("spouts: [{id: s, className: topo.FromList, constructorArgs: 3}]\n",
         ("kind", "t.yaml:1:44")),
        ("spouts: [{id: s, className: topo.VERSION}]\n", ("unknown-class", "t.yaml:1:18")),
        ("spouts: [{id: s, className: FromList}]\n", ("unknown-class", "t.yaml:1:18")),
        ("spouts: [{id: s, className: org.apache.storm.kafka.spout.KafkaSpout}]\n",
         ("unknown-class", "t.yaml:1:18")),
        (SPOUT + "streams: [{from: s, to: s, grouping: {type: ALL}}]\n",
         ("unknown-component", "t.yaml:2:21")),
        (SPOUT + "streams: [{from: s, grouping: {type: ALL}}]\n", ("missing-key", "t.yaml:2:11")),
        (SPOUT + "bolts: [{id: b, className: topo.flux.storm.LogInfoBolt}]\n",
         ("no-input", "t.yaml:2:9")),
        ("components: [{id: a, className: builtins.list, constructorArgs: [{ref: a}]}]\n" + SPOUT,
         ("reference-circle", "t.yaml:1:67")),
        ("components: [{id: a, className: builtins.list, constructorArgs: [{ref: b}]}]\n" + SPOUT,
         ("unknown-reference", "t.yaml:1:67")),
        (SPOUT + "includes: [{file: no.yaml}]\n", ("include", "t.yaml:2:13")),
        (SPOUT + "includes: [{file: 'nopackage:a.yaml', resource: true}]\n",
         ("include", "t.yaml:2:13")),
        ("spouts: [{id: s, className: topo.FromList, constructorArgs: [[1], n], parallelism: 0}]\n",
         ("parallelism", "t.yaml:1:71")),
    ],
)  # fmt: skip
def test_a_problem_names_its_place(tmp_path: Path, text: str, problem: tuple[str, str]) -> None:
    assert problems_of(write(tmp_path, text)) == [problem]


def test_aliases_that_multiply_are_too_much(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    assert problems_of(write(tmp_path, "\n".join(lines)))[0][0] == "yaml"


def test_levels_are_limited(tmp_path: Path) -> None:
    assert problems_of(write(tmp_path, "a: " + "[" * 30 + "]" * 30))[0] == ("yaml", "t.yaml:1:1")


def test_a_resource_of_a_package_is_included(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "", "flux_resources/__init__.py")
    write(tmp_path, SPOUT, "flux_resources/parts/s.yaml")
    monkeypatch.syspath_prepend(tmp_path)
    file = write(tmp_path, "includes: [{file: 'flux_resources:parts/s.yaml', resource: true}]\n")
    topology, conf = load(file)
    assert list(topology.components) == ["s"]
    assert conf == {}


def test_an_exception_of_a_constructor_names_the_place(tmp_path: Path) -> None:
    write(tmp_path, "def broken():\n    return 1 / 0\n", "flux_broken.py")
    file = write(tmp_path, "spouts: [{id: s, className: flux_broken.broken}]\n")
    with pytest.raises(TargetError, match="spout 's' raised ZeroDivisionError") as caught:
        load_file(file)
    assert caught.value.at == "t.yaml:1:10"
    assert "return 1 / 0" in caught.value.user_traceback
    assert "topo/flux" not in caught.value.user_traceback


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="no such file"):
        load_file(tmp_path / "t.yaml")
    (tmp_path / "t.yaml").write_bytes(b"\xff")
    with pytest.raises(TargetError, match="not UTF-8"):
        load_file(tmp_path / "t.yaml")
    with pytest.raises(ConfigError, match="no such file"):
        load_file(tmp_path / "t.yaml", filters=[tmp_path / "no.properties"])


# -- the command line ------------------------------------------------------------------------------


def test_a_target_in_yaml(tmp_path: Path) -> None:
    target = load_target(str(write(tmp_path, f"config: {{a.b: 1}}\n{SPOUT}")))
    assert target.default_name == "t"
    assert target.conf.values == {"a.b": 1}
    assert target.directory == tmp_path.resolve()


def test_a_misspelt_file_and_a_filter_of_python(tmp_path: Path) -> None:
    write(tmp_path, SPOUT, "words.yaml")
    with pytest.raises(TargetError) as caught:
        load_target(str(tmp_path / "word.yaml"))
    assert caught.value.hint == "did you mean 'words.yaml'?"
    with pytest.raises(TargetError, match="--filter fills placeholders"):
        load_target("t.py", filters=["a.properties"])


def test_explain_fills_and_tells_all_problems(tmp_path: Path) -> None:
    properties = write(tmp_path, "debug=true\n", "a.properties")
    file = write(tmp_path, f"config: {{topology.debug: ${{debug}}}}\n{SPOUT}")
    arguments = ["explain", str(file), "--filter", str(properties), "--json"]
    result = click.testing.CliRunner().invoke(root, arguments, obj=None)
    if isinstance(result.exception, MissingExtra):
        raise result.exception  # so that the test is skipped, as its others are
    assert result.exit_code == 0, result.output
    assert "topology.debug" in json.dumps(json.loads(result.stdout))
