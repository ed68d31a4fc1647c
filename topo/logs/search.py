"""A regular expression that log messages are searched for, in a process of its own.

A pattern such as `(a+)+$` takes Python's `re` years over a line of forty characters, with the
interpreter's lock held: nothing else of a process runs meanwhile, not even its handlers of signals.
Whoever asks may be a stranger with the right to look at logs. So another process does the search,
which the kernel ends when its processor time is over.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from topo.errors import TopoError

SEARCH_SECS = 5.0
"""Of processor time, over the lines of one reading."""
_MOST_AT_ONCE = 8
_LINES_AT_ONCE = 1000

_SEARCH = """
import json, os, re, signal, sys
os.nice(10)
secs = left = float(sys.argv[1])
pattern = re.compile(json.loads(sys.stdin.buffer.readline()))
for line in sys.stdin.buffer:
    is_first, messages = json.loads(line)
    signal.setitimer(signal.ITIMER_PROF, secs if is_first else left)
    found = "".join("1" if pattern.search(message) else "0" for message in messages)
    left = signal.setitimer(signal.ITIMER_PROF, 0)[0]
    sys.stdout.write(found + "\\n")
    sys.stdout.flush()
"""


class InvalidPattern(TopoError):
    """Text that is no regular expression."""

    code = "grep"


class SearchTooSlow(TopoError):
    """A search that would take too long, or comes on top of too many others."""

    code = "grep"


class Search:
    """A search for one pattern, from the first lines until `close`.

    For one thread at a time; but any thread may close it, which ends a search in work.
    """

    _seats = threading.BoundedSemaphore(_MOST_AT_ONCE)

    def __init__(self, pattern: str, secs: float = SEARCH_SECS) -> None:
        try:
            re.compile(pattern)
        except re.error as error:
            where = f" at position {error.pos}" if error.pos is not None else ""
            raise InvalidPattern(f"{error.msg}{where}: {pattern!r}") from None
        except (RecursionError, OverflowError) as error:
            raise InvalidPattern(f"{error}: {pattern[:100]!r}") from None
        self._pattern = pattern
        self._secs = secs
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = threading.Lock()

    def matching(self, lines: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield the lines whose message has the pattern; raise SearchTooSlow at the time's end."""
        left, is_first = iter(lines), True
        while some := list(islice(left, _LINES_AT_ONCE)):
            matches = self._ask([is_first, [line["message"] for line in some]])
            yield from (line for line, does in zip(some, matches, strict=True) if does == ord("1"))
            is_first = False

    def close(self) -> None:
        """End the process; later lines would start another."""
        with self._closing:
            process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        with suppress(OSError):  # what was not written yet has nobody to read it
            process.communicate()
        self._seats.release()

    def _ask(self, question: object) -> bytes:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
            answer = process.stdout.readline().rstrip(b"\n")
        except OSError:
            answer = b""
        if not answer:
            self.close()
            raise SearchTooSlow(
                f"the search for {self._pattern[:100]!r} took more than {self._secs:g} s",
                hint="nested repetitions such as (a+)+ take for ever; a plain text is quick",
            )
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        if not self._seats.acquire(blocking=False):
            raise SearchTooSlow(f"{_MOST_AT_ONCE} searches are going on", hint="try again soon")
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _SEARCH, str(self._secs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is for the process that asks
            )
            assert process.stdin is not None
            process.stdin.write(json.dumps(self._pattern).encode() + b"\n")
        except BaseException:
            self._seats.release()
            raise
        self._process = process
        return process
