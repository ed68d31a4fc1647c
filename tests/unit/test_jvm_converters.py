"""Calls into the JVM, which are part of each start, do not import pandas."""

from __future__ import annotations

import subprocess
import sys

ASKING = """
import sys
from py4j.protocol import INPUT_CONVERTER
from topo.engine.spark.jvm.converters import avoid_pandas

avoid_pandas()
avoid_pandas()
import numpy

assert not any(one.can_convert(object()) for one in INPUT_CONVERTER)
for value in (numpy.zeros(2), numpy.int64(3)):
    assert any(one.can_convert(value) for one in INPUT_CONVERTER), value
assert "pandas" not in sys.modules
"""


def test_calls_into_the_jvm_do_not_import_pandas() -> None:
    done = subprocess.run([sys.executable, "-c", ASKING], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
