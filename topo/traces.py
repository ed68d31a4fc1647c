"""The one idea of whether a frame of a traceback is topo's or the user's."""

from __future__ import annotations

import os
from pathlib import Path

GENERATED = "<topo loop>"
"""The file name of code that topo writes at run time."""

_HOME = Path(__file__).resolve().parent
# With a separator at the end: `topology.py` or `topo_jobs/` beside the package are the user's.
_TOPO = str(_HOME) + os.sep
_TESTING = str(_HOME / "testing") + os.sep


def is_topos(filename: str) -> bool:
    """True iff a frame of this file is topo's; `topo.testing` counts as the user's."""
    own = filename.startswith(_TOPO) and not filename.startswith(_TESTING)
    return own or filename == GENERATED
