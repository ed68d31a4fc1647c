"""The figures of a run: counted per task and batch, added up, kept over time windows."""
