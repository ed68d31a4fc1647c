"""The driver's side of a run on Spark: sessions, queries, checkpoints, and the course of a run."""
