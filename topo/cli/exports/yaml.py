"""Documents as YAML, without a library for it: plain words, and everything else as JSON has it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
_BLOCK = re.compile(r"[!-~][ -~]*\n([ -~]*[!-~]\n)*")
"""Lines that can stand as they are: the first does not begin with a space, none is blank."""
_NOT_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def stream_of(documents: Iterable[Any]) -> str:
    """Return documents as one stream."""
    return "---\n".join("\n".join(_lines(document, 0)) + "\n" for document in documents)


def _lines(value: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _entry(f"{indent}{_scalar(key)}:", part, depth)
    else:
        for part in value:
            if isinstance(part, dict) and part:
                first, *rest = _lines(part, depth + 1)
                yield f"{indent}- {first.lstrip()}"
                yield from rest
            else:
                yield from _entry(f"{indent}-", part, depth)


def _entry(head: str, part: Any, depth: int) -> Iterator[str]:
    if isinstance(part, str) and _BLOCK.fullmatch(part):
        yield f"{head} |"
        yield from ("  " * (depth + 1) + line for line in part[:-1].split("\n"))
    elif isinstance(part, dict | list) and part:
        yield head
        yield from _lines(part, depth + 1)
    else:
        yield f"{head} {_scalar(part)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _NOT_WORDS:
        return value
    return json.dumps(value, ensure_ascii=False)
