"""The single-threaded engine: the test kit's, and the oracle for the Spark engine."""
