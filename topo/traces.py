"""The one idea of whether a frame of a traceback is topo's, a library's or the user's."""

from __future__ import annotations

import importlib
import os
import sys
import sysconfig
import traceback
from pathlib import Path

GENERATED = "<topo loop>"
"""The file name of code that topo writes at run time."""

_HOME = Path(__file__).resolve().parent
# With a separator at the end: `topology.py` or `topo_jobs/` beside the package are the user's.
_TOPO = str(_HOME) + os.sep
_TESTING = str(_HOME / "testing") + os.sep
_INSTALLED = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)
_PACKAGE_DIRECTORIES = tuple(
    f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages")
)
"""Also of another Python: the user's site, the system's, an environment on PYTHONPATH."""


def is_librarys(filename: str) -> bool:
    """True iff a file belongs to Python or to an installed package, or is no file of a user's."""
    if filename.startswith((*_INSTALLED, "<frozen ", "<string>")):
        return True
    return any(part in filename for part in _PACKAGE_DIRECTORIES)


def is_topos(filename: str) -> bool:
    """True iff a frame of this file is topo's; `topo.testing` counts as the user's."""
    own = filename.startswith(_TOPO) and not filename.startswith(_TESTING)
    return own or filename == GENERATED


def users_part(error: BaseException) -> str:
    """Return the traceback of an error from the first frame of the user's code on."""
    trace = error.__traceback__
    while trace and is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def is_ours(filename: str) -> bool:
    """True iff a frame of this file is topo's, or Python's own machinery of imports."""
    return is_topos(filename) or filename.startswith(("<frozen importlib", importlib.__file__))


def callers_place() -> str:
    """Return the first line outside topo on the stack: "wordcount.py:31"."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_topos(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def users_place() -> str:
    """Return the innermost line of the user's on the stack; "" if there is none."""
    frame = sys._getframe(1)
    while is_topos(frame.f_code.co_filename) or is_librarys(frame.f_code.co_filename):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
