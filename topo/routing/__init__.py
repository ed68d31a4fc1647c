"""The choice of the tasks that get a tuple: groupings, hashing, dealing the rows of a stream."""
