"""The lists of exceptions shrink, and nothing else."""

from __future__ import annotations

import tomllib

import pytest

from tests.architecture import exceptions
from tests.architecture.exceptions import Offenders, beyond, check, common, document


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> None:
    rules: dict[str, Offenders] = {"a rule": {"a.py": ["x", "y"], "b.py": 2}}
    monkeypatch.setattr(exceptions, "_all_listed", lambda: rules)


@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize(
    ("offenders", "error"),
    [
        ({"a.py": ["x", "y"], "b.py": 2}, ""),
        ({"a.py": ["x", "y", "z"], "b.py": 2}, r"new offenders.*\['z'\]"),
        ({"a.py": ["x", "y"], "b.py": 3}, r"new offenders.*'b.py': 1"),
        ({"a.py": ["x", "y"], "b.py": 2, "c.py": 1}, r"new offenders.*'c.py': 1"),
        ({"a.py": ["x"], "b.py": 2}, r"no more: .*\['y'\]"),
        ({"a.py": ["x", "y"]}, r"no more: .*'b.py': 2"),
    ],
)
def test_new_and_needless_exceptions_fail(offenders: Offenders, error: str) -> None:
    if not error:
        check("a rule", offenders)
        return
    with pytest.raises(AssertionError, match=error):
        check("a rule", offenders)


def test_what_is_common_never_grows() -> None:
    listed: Offenders = {"a.py": ["x", "x", "y"], "b.py": 2, "c.py": 1}
    offenders: Offenders = {"a.py": ["x", "z"], "b.py": 5, "d.py": 1}
    assert common(listed, offenders) == {"a.py": ["x"], "b.py": 2}
    assert beyond(common(listed, offenders), listed) == {}


def test_the_file_is_read_as_it_was_written() -> None:
    rules: dict[str, Offenders] = {"a rule": {"a.py": ["x['k'].y", 'z["k"]'], "b.py": 2}, "b": {}}
    assert tomllib.loads(document(rules)) == rules
