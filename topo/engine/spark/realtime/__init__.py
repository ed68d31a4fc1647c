"""Real-time mode: tuples stream through Spark row by row, and what they did commits in epochs.

    align, epochs, store                pure, or next to it: markers, commits, the log of epochs
    java, query                         what runs in Spark's JVM, and the query made of it
    stream, loop, coordinator           sockets, a slot's loop, the driver's end of the slots
    resources                           what a run in this mode has open

A reader starts with `align`, then `epochs`, then `loop`.
"""
