"""The command line: one module per command, loaded when the command is called."""

from __future__ import annotations

import sys
from typing import NoReturn

import topo.forks  # noqa: F401 - the user's code may import gRPC too


def main() -> NoReturn:
    from topo.cli.root import run

    sys.exit(run(sys.argv[1:]))
