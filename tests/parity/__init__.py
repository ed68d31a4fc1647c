"""What stands around a topology in Storm, as cases: DRPC, YAML, other languages, loops, keys."""
