"""The error for an operator that a stream has not.

Whoever comes from another library writes `flatMap`, and whoever begins forgets the key: a bare
AttributeError tells neither what is written here.
"""

from __future__ import annotations

from topo.errors import nearest


def missing_operator(cls: type, name: str, keyed: type) -> AttributeError:
    """Return the error for a name that a class of streams lacks; `keyed` is that of most names."""
    words = f"{cls.__name__!r} object has no attribute {name!r}"
    if name.startswith("_"):
        return AttributeError(words)
    operators = [member for member in dir(keyed) if not member.startswith("_")]
    operator = nearest(name, operators)
    if hasattr(cls, operator):
        return AttributeError(f"{words}; did you mean {operator!r}?")
    if operator:
        words += f"; {operator!r} is an operator of streams with keys: write key_by(...) before it"
    return AttributeError(words)
