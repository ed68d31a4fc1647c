"""What has to hold before any test module is imported.

Tests of the ackers leave gRPC's threads behind in this process, which is forked to start Spark.
"""

import topo.forks  # noqa: F401
