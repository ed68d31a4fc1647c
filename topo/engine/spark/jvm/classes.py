"""The directory of classes that topo compiles, in the JVM's own directory."""

CLASSES = "topo-classes"
CLASSES_SETTING = "spark.topo.classes"
"""Where it is, among the settings of a Spark that topo has started."""
