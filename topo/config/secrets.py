"""Values that are never shown: passwords, tokens, keys.

A setting or client property whose name says that it is one is written `***` wherever topo shows
settings. A `Secret` goes further: its value is looked up where the task runs, so that it is neither
in the pickled topology nor in a checkpoint.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from topo.errors import ConfigError, words_of

HIDDEN = "***"
_WORDS = re.compile(
    r"(^|[._\-])(password|passwd|pwd|passphrase|secrets?|tokens?|credentials?|jaas|"
    r"(api|access|private|secret)[._\-]?key)([._\-]|$)",
    re.IGNORECASE,
)
_INNER_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
"""Where a name such as keyPassword is one of several words."""


class Secret:
    """A value that shows as `***`: given, or read from the environment or a file where it is used.

    `Secret.env("KAFKA_PASSWORD")` and `Secret.file("/run/secrets/kafka")` travel by name only.
    """

    def __init__(self, value: str) -> None:
        self._kind, self._text = "value", value

    @classmethod
    def env(cls, name: str) -> Secret:
        """Make a secret that is the value of an environment variable where the task runs."""
        made = cls(name)
        made._kind = "env"
        return made

    @classmethod
    def file(cls, path: str | Path) -> Secret:
        """Make a secret that is the text of a file where the task runs, less its last line end."""
        made = cls(str(path))
        made._kind = "file"
        return made

    def reveal(self) -> str:
        """Return the value; raise ConfigError if it is not there."""
        if self._kind == "value":
            return self._text
        if self._kind == "env":
            value = os.environ.get(self._text)
            if value is None:
                raise ConfigError(
                    f"the environment variable {self._text!r} of a secret is not set",
                    hint="set it where the tasks run",
                )
            return value
        try:
            return Path(self._text).read_text().rstrip("\r\n")
        except OSError as error:
            raise ConfigError(
                f"the file {self._text!r} of a secret cannot be read: {words_of(error)}",
                hint="it has to be where the tasks run",
            ) from error

    def told(self) -> tuple[str, str]:
        """Return what `from_told` makes the same secret of; not for showing."""
        return self._kind, self._text

    @classmethod
    def from_told(cls, kind: str, text: str) -> Secret:
        made = cls(text)
        made._kind = kind
        return made

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return (self._kind, self._text) == (other._kind, other._text)

    def __hash__(self) -> int:
        return hash((self._kind, self._text))

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__


def revealed(value: Any) -> Any:
    """Return the value of a Secret, and anything else as it is; in mappings too."""
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, Mapping):
        return {key: revealed(each) for key, each in value.items()}
    return value


def is_secret(name: str) -> bool:
    """Return True if a setting of this name holds what is not to be shown."""
    return _WORDS.search(_INNER_CAPITAL.sub(".", name)) is not None


def masked(name: str, value: Any) -> Any:
    """Return the value as it may be shown: `***` if it is a secret, in mappings and lists too."""
    if isinstance(value, Secret) or (value is not None and is_secret(name)):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: masked(str(key), cast(Any, each)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [masked("", each) for each in value]
    return without_password(value) if isinstance(value, str) else value


_PASSWORD = re.compile(
    r"(://[^/:@\s]*):(?:[^/?#\s]*@|(?!\d+(?:[/?#,]|$)|[\da-fA-F:.]*\]).*@)", re.DOTALL
)
"""Up to the last "@" before the path; in a URL that is wrong a password may have any character.

A number is a port, and what ends with a bracket an address, behind which "@" is part of the path.
"""


def without_password(url: str) -> str:
    """Return a URL as it may be shown: without the password in it."""
    return _PASSWORD.sub(rf"\1:{HIDDEN}@", url)
