"""Who may call a function, and who may compute it.

A token is always asked for: the server's own, or one of the ACL's. An ACL is a TOML file:

    strict = true                     # functions without an entry are closed

    [functions.reach]
    call = ["a-callers-token"]
    serve = "the-topologys-token"
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from topo.errors import ConfigError, words_of
from topo.tracking.security import same_token

_KEYS = {"call", "serve"}


@dataclass(frozen=True)
class Access:
    """The tokens of a server. `own` opens every function that has no entry."""

    own: str = field(default="", repr=False)
    callers: Mapping[str, Collection[str]] = field(default_factory=dict, repr=False)
    """By function with an entry."""
    servers: Mapping[str, str] = field(default_factory=dict, repr=False)
    strict: bool = False

    @classmethod
    def read(cls, own: str, name: str | None) -> Access:
        """Read an ACL; without one the server's own token opens everything."""
        if name is None:
            return cls(own)
        try:
            document = tomllib.loads(Path(name).read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(f"cannot read {name}: {words_of(error)}") from None
        except ValueError as error:
            raise ConfigError(f"{name} is no TOML: {error}") from None
        return cls.of(own, document, name)

    @classmethod
    def of(cls, own: str, document: Mapping[str, Any], name: str = "the ACL") -> Access:
        """Check the content of an ACL."""
        functions = document.get("functions", {})
        strict = document.get("strict", False)
        unknown = set(document) - {"functions", "strict"}
        if unknown or not isinstance(strict, bool) or not isinstance(functions, Mapping):
            raise ConfigError(
                f"{name} has {', '.join(sorted(unknown)) or 'a wrong value'}",
                hint="it has `strict = true` and tables [functions.NAME]",
            )
        callers: dict[str, Collection[str]] = {}
        servers: dict[str, str] = {}
        for function, entry in functions.items():
            if not isinstance(entry, Mapping) or set(entry) - _KEYS:
                raise ConfigError(
                    f"{name}, functions.{function}: an entry has `call` and `serve`",
                    hint='call = ["TOKEN"], serve = "TOKEN"',
                )
            tokens, server = entry.get("call", []), entry.get("serve", "")
            if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
                raise ConfigError(f"{name}, functions.{function}.call is a list of tokens")
            if not isinstance(server, str):
                raise ConfigError(f"{name}, functions.{function}.serve is one token")
            callers[function], servers[function] = tuple(tokens), server
        return cls(own, callers, servers, strict)

    def may_call(self, function: str, token: str) -> bool:
        """True iff the holder of a token may call the function."""
        if function in self.callers:
            matches = [same_token(token, caller) for caller in self.callers[function]]
            return any(matches)  # all are compared, so that the time tells nothing
        return not self.strict

    def may_serve(self, function: str, token: str) -> bool:
        """True iff the holder of a token may compute the function."""
        if function in self.servers:
            server = self.servers[function]
            return bool(server) and same_token(token, server)
        return not self.strict

    def knows(self, token: str) -> bool:
        """True iff a token is the server's own or one of the ACL's."""
        tokens = [self.own, *self.servers.values()]
        tokens += [caller for callers in self.callers.values() for caller in callers]
        matches = [same_token(token, other) for other in tokens if other]
        return bool(token) and any(matches)
