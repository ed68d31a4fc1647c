"""The worker's side of a run on Spark: stages, slot processes, and their messages."""
