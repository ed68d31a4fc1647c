"""Fields and tuples as users read them."""

from __future__ import annotations

import copy
import pickle

import pytest

from topo import Fields, Tuple
from topo.errors import ConfigError, UnknownField
from topo.testing import make_tuple
from topo.testing.single import make_tick


def test_fields_are_ordered_names() -> None:
    fields = Fields("a", ["b", "c"])
    assert list(fields) == ["a", "b", "c"]
    assert (len(fields), fields[1], fields[1:], "c" in fields) == (3, "b", ("b", "c"), True)
    assert fields == Fields("a", "b", "c") == ("a", "b", "c")
    assert fields != Fields("b", "a", "c")
    assert len({fields, Fields("a", "b", "c")}) == 1
    assert repr(fields) == "Fields('a', 'b', 'c')"


def test_one_str_is_one_field() -> None:
    assert list(Fields("word")) == ["word"]


def test_fields_refuse_what_is_no_name() -> None:
    with pytest.raises(ConfigError, match="duplicate field 'a', 'b'"):
        Fields("a", "b", "b", "a")
    with pytest.raises(ConfigError, match="a field name is a str; got 3"):
        Fields(["a", 3])  # type: ignore[list-item]


def test_fields_select_values_in_the_order_asked_for() -> None:
    fields = Fields("foo", "bar", "baz")
    assert fields.select("bar", ["a", "b", "c"]) == ["b"]
    assert fields.select(Fields("baz", "foo"), ("a", "b", "c")) == ["c", "a"]
    assert fields.select([], ["a", "b", "c"]) == []
    with pytest.raises(KeyError, match=r"no field 'fo' in Fields\(.*did you mean 'foo'"):
        fields.select(["bar", "fo"], ["a", "b", "c"])


def test_a_tuple_reads_by_name_attribute_and_position() -> None:
    tup = make_tuple({"word": "cow", "count": 3, "index": 7}, component="split", task=4)
    assert (tup["word"], tup.word, tup[0], tup[-3]) == ("cow",) * 4
    assert (tup.count, tup.index) == (3, 7)
    assert tup.values == list(tup) == ["cow", 3, 7]
    assert tup[1:] == [3, 7]
    assert (len(tup), "cow" in tup, "calf" in tup) == (3, True, False)
    assert (tup.source_component, tup.source_stream, tup.source_task) == ("split", "default", 4)
    assert not tup.is_tick
    assert tup.select("index", "word") == [7, "cow"]
    assert (tup.get("word"), tup.get("wrod"), tup.get("wrod", 0)) == ("cow", None, 0)


def test_a_tuples_own_attributes_win_over_fields() -> None:
    tup = make_tuple({"values": 1, "fields": 2, "get": 3})
    assert tup.values == [1, 2, 3]
    assert tup.fields == ("values", "fields", "get")
    assert [tup["values"], tup["fields"], tup["get"]] == [1, 2, 3]
    assert tup.get("get") == 3


@pytest.mark.parametrize("name", ["class", "not an identifier", "__dunder__", "_topo_0", "", "é"])
def test_any_name_is_read_by_key(name: str) -> None:
    assert make_tuple({name: 5, "other": 6})[name] == 5


def test_unknown_fields_name_the_nearest() -> None:
    tup = make_tuple({"name": 1, "place": 2}, component="people")
    with pytest.raises(KeyError) as by_key:
        tup["nme"]
    with pytest.raises(AttributeError) as by_attribute:
        tup.nme  # noqa: B018
    for refused in (by_key, by_attribute):
        text = str(refused.value)
        assert "no field 'nme' in a tuple of 'people'" in text
        assert "its fields are 'name', 'place'" in text
        assert "did you mean 'name'?" in text
        assert isinstance(refused.value, UnknownField)
    with pytest.raises(
        IndexError, match=r"no position 2 in a tuple of 2 values \('name', 'place'\)"
    ):
        tup[2]
    with pytest.raises(IndexError):
        tup[-3]
    with pytest.raises(KeyError):
        tup.select("name", "nme")
    with pytest.raises(TypeError, match="by name, position or slice"):
        tup[None]  # type: ignore[index]
    assert not hasattr(tup, "nme")
    assert getattr(tup, "nme", "none") == "none"


def test_equality_and_hash_are_identity() -> None:
    one, other = make_tuple(["a"]), make_tuple(["a"])
    assert one != other
    assert len({one, other}) == 2
    assert one in [one]


def test_a_tuple_copies_to_itself_and_pickles() -> None:
    tup = make_tuple({"a": [1]}, component="c", stream="s", task=9)
    assert copy.copy(tup) is tup
    assert copy.deepcopy(tup) is tup
    again: Tuple = pickle.loads(pickle.dumps(tup))
    assert again.values == [[1]]
    assert (again.source_component, again.source_stream, again.source_task) == ("c", "s", 9)


def test_a_tuple_prints_its_origin_and_fields() -> None:
    assert repr(make_tuple({"a": 1}, component="c")) == "<Tuple of 'c' task 1: a=1>"
    assert repr(make_tuple(["x"], stream="s")) == (
        "<Tuple of 'component' stream 's' task 1: field1='x'>"
    )
    assert "%s" % make_tuple([1, 2]) == repr(make_tuple([1, 2]))  # noqa: UP031


def test_a_tick_says_so() -> None:
    tick = make_tick(5)
    assert tick.is_tick
    assert (tick.source_component, tick.source_stream) == ("__system", "__tick")
    assert tick.values == [5]


def test_a_tuple_of_no_fields() -> None:
    tup = make_tuple([])
    assert (tup.values, len(tup), list(tup)) == ([], 0, [])
    with pytest.raises(AttributeError, match="its fields are none"):
        tup.a  # noqa: B018
