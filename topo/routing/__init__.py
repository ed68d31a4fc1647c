"""Which tasks get a tuple: groupings, hashing, dealing the rows of a stream."""
