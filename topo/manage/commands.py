"""Commands of topo in processes of their own, for servers.

What a command imports are a topology's modules: whoever wrote them may block, end the process, or
change what others in it see, which is nothing for a process that serves others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from topo.errors import RunError, words_of

_SHOWN_CHARS = 500


class CommandFailed(RunError):
    """The failure of a command, as it has written it.

    `reason` is the code of its error, or empty if it ended without a word of why.
    """

    def __init__(self, exit_code: int, error: dict[str, Any] | None, text: str) -> None:
        error = error or {}
        super().__init__(
            str(error.get("message") or text.strip()[-_SHOWN_CHARS:]),
            at=str(error.get("at") or ""),
            hint=str(error.get("hint") or ""),
        )
        self.exit_code = exit_code
        self.reason = str(error.get("code") or "")


def answer_of(arguments: Sequence[str], home: Path, directory: Path, secs: float) -> Any:
    """Run `topo ARGUMENTS --json` in `directory`, and return its answer.

    Raise CommandFailed, `subprocess.TimeoutExpired` after `secs`, and RunError if no process can be
    started.
    """
    name, *rest = arguments
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "topo.cli", name, "--json", *rest],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=secs,
            check=False,
            cwd=directory,
            env={**os.environ, "TOPO_HOME": str(home)},
        )
    except OSError as failure:
        raise RunError(f"topo {name} could not be started: {words_of(failure)}") from None
    except ValueError:  # of a NUL, or half of a surrogate pair
        error = {"code": "usage", "message": "a value holds a character that no command can take"}
        raise CommandFailed(2, error, "") from None
    text = done.stderr.decode(errors="replace")
    if done.returncode != 0:
        raise CommandFailed(done.returncode, _error_in(text), text)
    try:
        return json.loads(_last_line(done.stdout.decode()))
    except ValueError:
        raise CommandFailed(0, None, text) from None


def _last_line(text: str) -> str:
    """Return the answer: before it, the user's modules may have printed what they liked."""
    return text.strip().rpartition("\n")[2]


def _error_in(text: str) -> dict[str, Any] | None:
    try:
        error = json.loads(_last_line(text))["error"]
    except (ValueError, KeyError, TypeError):
        return None
    return error if isinstance(error, dict) else None
