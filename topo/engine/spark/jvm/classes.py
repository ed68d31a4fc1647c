"""The directory for classes that are compiled while Spark runs."""

CLASSES = "topo-classes"
"""Its name, in the directory of the JVM."""
