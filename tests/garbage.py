"""Collections of garbage at times that a test does not notice.

boto3, pika and others leave sockets to the collector; whenever it came by, the test that ran just
then would fail for their warning.
"""

from __future__ import annotations

import gc
import warnings


def collect_garbage() -> None:
    """Collect what the tests before have left, without warnings of what it had open."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
