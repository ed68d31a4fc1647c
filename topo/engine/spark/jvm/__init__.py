"""Spark's JVM: which Java runs it, the session, and the changes made inside it."""
