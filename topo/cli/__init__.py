"""The command line: one module a command, loaded when it is called."""

from __future__ import annotations

import sys
from typing import NoReturn

import topo.forks  # noqa: F401 - the user's code may import gRPC too


def main() -> NoReturn:
    from topo.cli.root import run

    sys.exit(run(sys.argv[1:]))
