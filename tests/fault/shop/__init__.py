"""A user's package, as it is submitted to a cluster whose workers know nothing of it."""
