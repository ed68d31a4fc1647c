"""Spark's own sources and sinks: what it reads for spouts and writes for bolts."""
