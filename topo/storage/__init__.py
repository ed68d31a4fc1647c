"""The saved state of tasks: its format, writing and restoring."""
