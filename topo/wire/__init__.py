"""The bytes that travel between tasks: frames, and the columns inside them."""
