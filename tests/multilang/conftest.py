"""What the tests of components in other languages share."""

from __future__ import annotations

import pytest

from tests.multilang.started import begin


@pytest.fixture(autouse=True)
def _processes_of_others() -> None:
    begin()
