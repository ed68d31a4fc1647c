"""One module knows what systems differ in: `topo/systems.py`."""

from __future__ import annotations

import ast

import pytest

from tests.architecture.source import Source, topo_sources

SYSTEMS = "systems.py"
NOT_EVERYWHERE = {
    "sched_getaffinity", "sched_setaffinity", "eventfd", "eventfd_read", "eventfd_write", "waitid",
    "fdatasync", "memfd_create", "pipe2", "pidfd_open", "posix_fadvise", "posix_fallocate",
    "splice", "epoll", "getrandom", "copy_file_range", "preadv", "pwritev", "F_FULLFSYNC",
}  # fmt: skip
"""Names of `os`, `select` and `fcntl` that Python 3.11 has on Linux, and not on macOS; and back."""


def differences(source: Source) -> list[str]:
    """Return the places of a file that ask for a system, or for what only one of them has."""
    return [
        f"{source.place}:{node.lineno}: {ast.unparse(node)}"
        for node in source.every(ast.Attribute)
        if node.attr in NOT_EVERYWHERE or ast.unparse(node) in ("sys.platform", "os.name")
    ]


def test_no_other_module_asks_for_the_system() -> None:
    others = (source for source in topo_sources() if source.place != SYSTEMS)
    assert [place for source in others for place in differences(source)] == []


@pytest.mark.parametrize(
    "code", ["os.waitid(os.P_PID, 1, 0)", "os.eventfd(0)", "if sys.platform == 'win32': pass"]
)
def test_a_difference_is_found(code: str) -> None:
    assert len(differences(Source("module.py", code))) == 1
