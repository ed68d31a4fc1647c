"""Topologies to read and to run; a test executes each of them."""
