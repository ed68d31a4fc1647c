"""The answers of connectors to names of arguments that they do not have.

A word means the same on every connector; docs/connectors has the table of them. Another name is
answered with the one that is meant: what it was called before, what the client's own library calls
it, or what is most like it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import ParamSpec

from topo.errors import ComponentError, did_you_mean

P = ParamSpec("P")

RENAMED: Mapping[str, str] = {
    "max_uncommitted": "max_in_flight",
    "max_unacked": "max_in_flight",
    "prefetch": "max_in_flight",
    "max_waiting": "max_in_flight",
    "most": "page",
    "rows_per_call": "page",
    "bootstrap_servers": "servers",
    "group_id": "group",
    "brokers": "servers",
    "topic": "topics",
    "topics": "topic",
    "format": "value",
    "value_format": "value",
    "consumer_config": "settings",
    "config": "settings",
    "conf": "settings",
    "max_tries": "retry",
    "retries": "retry",
    "on_error": "on_bad",
    "transform": "translate",
    "mapper": "map",
}
"""Names that were, or are elsewhere, those of an argument; a connector may have others."""


def answering(
    renamed: Mapping[str, str] | None = None,
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Have an `__init__` answer names that it does not have with the ones that it has."""
    names = {**RENAMED, **(renamed or {})}

    def decorate(init: Callable[P, None]) -> Callable[P, None]:
        signature = inspect.signature(init)
        takes_all = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())

        @functools.wraps(init)
        def checked(*args: P.args, **kwargs: P.kwargs) -> None:
            unknown = [name for name in kwargs if name not in signature.parameters]
            if unknown and not (takes_all and names.get(unknown[0]) not in signature.parameters):
                raise _no_argument(type(args[0]).__name__, unknown[0], names, signature)
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                raise ComponentError(f"{type(args[0]).__name__}: {error}") from error
            init(*args, **kwargs)

        return checked

    return decorate


def _no_argument(
    connector: str, name: str, names: Mapping[str, str], signature: inspect.Signature
) -> ComponentError:
    listed = [each for each in signature.parameters if each not in ("self", "options")]
    instead = names.get(name)
    if instead in listed:
        return ComponentError(f"{connector} has no {name}=; it is called {instead}=")
    return ComponentError(
        f"{connector} has no {name}=; it has {', '.join(listed)}", hint=did_you_mean(name, listed)
    )
