"""A checkpoint directory as everybody sees it: where it lies, and the file that makes it topo's."""

from __future__ import annotations

from pathlib import Path

PLAN_FILE = "topo-plan.json"


def local_path(checkpoint: str) -> Path | None:
    """Return its path on this machine; None: it is on another file system, as hdfs: or s3a:."""
    if checkpoint.startswith("file:"):
        return Path(checkpoint.removeprefix("file:").removeprefix("//"))
    return None if "://" in checkpoint else Path(checkpoint)
