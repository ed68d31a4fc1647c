"""Real servers for tests: one module a server, each with `start(directory)`.

They listen on loop-back, on ports of their own, keep their data below the directory they are
given, and are stopped by their process ids, at the latest when the tests end. A server that is not
installed is skipped by its name (`tests/servers/processes.py`).
"""
