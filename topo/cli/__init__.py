"""The command line: one module a command, loaded when it is called."""

from __future__ import annotations

import sys
from typing import NoReturn


def main() -> NoReturn:
    from topo.cli.root import run

    sys.exit(run(sys.argv[1:]))
