"""Submission of a file that a user's browser has: a topology's Python, YAML, or a zip of both.

The file is put beside the registry, and `topo submit` takes it there, in a process of its own: the
names, settings and errors are those of the command. The directory stays as long as a run has its
code there, since every process of the run imports it, also after a restart.
"""

from __future__ import annotations

import base64
import io
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from topo.errors import RunError, TopoError, words_of
from topo.manage.built import InvalidSubmission
from topo.manage.commands import CommandFailed, answer_of
from topo.manage.records import RunRecord
from topo.manage.registry import Registry
from topo.manage.views import Change

SUFFIXES = (".py", ".yaml", ".yml", ".zip")
_TARGETS = (".py", ".yaml", ".yml")
_MOST_NAME = 100
_MOST_UNPACKED = 256 << 20
_MOST_FILES = 10_000
_IMPORT_SECS = 60.0
_UNUSED_SECS = 3600.0
"""How long the code of no run is kept: it may be on its way to become one's."""
_WHERE = {"-n": "name", "--master": "master"}
_WRONG = (1, 2, 3)
"""The exit codes of a command for what its user gave it: code, options, a topology."""


def submit_file(
    registry: Registry,
    *,
    file: str,
    content: str,
    target: str,
    name: str,
    args: str,
    conf: Mapping[str, Any] | None,
    master: str,
    active: bool,
    state: str,
) -> Change:
    """Submit the topology in a file; do not wait for its first batch."""
    data = _decoded(content)
    _check_name(file)
    if target.startswith("-"):
        raise InvalidSubmission(f"{target!r} is no target", hint="FILE, or FILE.py:ATTRIBUTE")
    try:
        directory = _new_directory(registry)
    except OSError as error:
        words = f"{file} cannot be kept in {registry.home}: {words_of(error)}"
        raise TopoError(words, hint="topo doctor", code="os") from None
    is_kept = False
    try:
        _write(directory, file, data)
        command = [
            "submit", "--wait", "0", f"--master={master}",
            *([f"--name={name}"] if name else []),
            *_pairs(conf or {}),
            *([] if active else ["--inactive"]),
            *([] if state == "refuse" else [f"--{state}"]),
            target or _target_in(directory, file),
            "--", *_split(args),
        ]  # fmt: skip
        answer = _submitted(registry, directory, command, file)
        is_kept = True
    finally:
        if not is_kept and _run_of(registry, directory) is None:
            shutil.rmtree(directory, ignore_errors=True)
    return Change(str(answer["name"]), str(answer["status"]), "")


def _submitted(
    registry: Registry, directory: Path, command: list[str], file: str
) -> Mapping[str, Any]:
    try:
        answer = answer_of(command, registry.home, directory, _IMPORT_SECS)
        return {"name": answer["name"], "status": answer["status"]}
    except subprocess.TimeoutExpired:
        if run := _run_of(registry, directory):  # its modules keep the process from ending
            return {"name": run.name, "status": run.status}
        raise InvalidSubmission(
            f"{file} was not imported in {_IMPORT_SECS:g} s",
            hint="what a module does when it is imported ends soon: work belongs into components",
        ) from None
    except CommandFailed as failure:
        raise _in_words(failure, directory, file) from None
    except (KeyError, TypeError):
        raise InvalidSubmission(f"{file} ended the process that imported it") from None


def _in_words(failure: CommandFailed, directory: Path, file: str) -> TopoError:
    """Return the error of a command as one of the API, with the user's place."""
    if not failure.reason:
        end = f": {failure.message}" if failure.message else ""
        words = f"{file} ended the process that imported it (exit code {failure.exit_code}){end}"
        return InvalidSubmission(words, hint="a module that is imported may not end its process")
    words, hint = failure.message, failure.hint
    if failure.at:
        words = f"{words} (at {_WHERE.get(failure.at, failure.at).removeprefix('-c ')})"
    words = words.replace(f"{directory}{os.sep}", "").replace(str(directory), file)
    if failure.reason == "checkpoint":
        return RunError(words, hint=hint.replace("--resume or --fresh", "state: resume or fresh"))
    if failure.reason == "run":
        return RunError(words, hint=hint.replace("-n another", "another name"))
    if failure.exit_code not in _WRONG:
        return TopoError(words, hint=hint, code=failure.reason)
    if failure.reason == "target" and " raised " in words:
        hint = hint or f"topo local {file} shows the traceback"
    return InvalidSubmission(words, hint=hint)


def _decoded(content: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except ValueError:
        raise InvalidSubmission("the content is not base64") from None


def _check_name(file: str) -> None:
    """Raise if `file` is no plain name of a file that can hold a topology."""
    is_plain = file.isprintable() and not set(file) & set("/\\:") and file[:1] not in ("", ".", "-")
    if not is_plain or len(file.encode(errors="replace")) > _MOST_NAME:
        raise InvalidSubmission(f"{file[:_MOST_NAME]!r} is no name of a file")
    if not file.endswith(SUFFIXES):
        raise InvalidSubmission(
            f"{file} is no file that can hold a topology", hint=f"one of {', '.join(SUFFIXES)}"
        )


def _pairs(conf: Mapping[str, Any]) -> list[str]:
    return [part for key, value in conf.items() for part in ("-c", f"{key}={json.dumps(value)}")]


def _split(args: str) -> list[str]:
    try:
        return shlex.split(args)
    except ValueError as error:
        words = f"the arguments cannot be split: {error}"
        raise InvalidSubmission(words, hint="as in a shell: 'two words'") from None


def _new_directory(registry: Registry) -> Path:
    """Return a new directory beside the registry; delete those whose runs are forgotten."""
    uploads = registry.home / "uploads"
    uploads.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(dir=uploads)).resolve()  # as tracebacks name it
    if registry.damaged():  # the code of a run that cannot be read would seem to be nobody's
        return new
    used = {run.submission.code_directory for run in registry.runs()}
    oldest = new.stat().st_mtime - _UNUSED_SECS  # by the clock of the file system
    for old in uploads.iterdir():
        with suppress(OSError):  # another server has deleted it
            if old.stat().st_mtime < oldest and not any(_is_in(place, old) for place in used):
                shutil.rmtree(old, ignore_errors=True)
    return new


def _run_of(registry: Registry, directory: Path) -> RunRecord | None:
    """Return the run that has its code in a directory."""
    runs = (run for run in registry.runs() if _is_in(run.submission.code_directory, directory))
    return next(runs, None)


def _is_in(place: str, directory: Path) -> bool:
    return Path(place).resolve().is_relative_to(directory.resolve())


def _write(directory: Path, file: str, data: bytes) -> None:
    try:
        if not file.endswith(".zip"):
            (directory / file).write_bytes(data)
            return
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            size = sum(member.file_size for member in members)
            if len(members) > _MOST_FILES or size > _MOST_UNPACKED:
                limit = f"{_MOST_FILES} files and {_MOST_UNPACKED >> 20} MB"
                raise InvalidSubmission(f"{file} is too large when it is unpacked: {limit} at most")
            archive.extractall(directory)  # which keeps to the directory, and makes no links
    except InvalidSubmission:
        raise
    except OSError as error:
        words = f"{file} cannot be written to {directory}: {words_of(error)}"
        raise TopoError(words, hint="topo doctor", code="os") from None
    except Exception as error:  # whatever somebody sent
        words = f"{file} cannot be unpacked: {type(error).__name__}: {error}"
        raise InvalidSubmission(words) from None


def _target_in(directory: Path, file: str) -> str:
    """Return the file of a topology: of a zip, the only one at its top."""
    if not file.endswith(".zip"):
        return file
    names = sorted(path.name for path in directory.iterdir() if path.name.endswith(_TARGETS))
    if len(names) == 1 and not names[0].startswith("-"):
        return names[0]
    there = ", ".join(names[:20]) or "none"
    raise InvalidSubmission(
        f"{file} does not say which file is the topology; at its top there is: {there}",
        hint="target: FILE or FILE.py:ATTRIBUTE in it",
    )
