"""Cases in files: JSON lines, what the file is about on the first one, and then one case a line.

A case that changes is one changed line, and the files have as many lines as they have cases.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Case = dict[str, Any]


def read_cases(path: Path) -> list[Case]:
    """Return the cases of a file in their order; a line that is none is refused by its number."""
    with path.open(encoding="utf-8") as lines:
        documents = [_document(path, number, line) for number, line in enumerate(lines, 1)]
    if not documents or "about" not in documents[0]:
        raise ValueError(f"{path}:1 does not say what the cases are about")
    return documents[1:]


def _document(path: Path, number: int, line: str) -> Case:
    try:
        document = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path}:{number} is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{path}:{number} is not a case: {line[:60]}")
    return document
