"""Real-time mode: tuples stream through Spark row by row, and what they did commits in epochs.

    align, epochs, store                pure, or next to it: markers, commits, the log of epochs
    java                                what runs in Spark's JVM (`jvm/java`); `query` is made of it
    stream, loop, coordinator           sockets, a slot's loop, the driver's end of the slots
    level, portions, output             what a slot does at a level, and how much of it at a time
    resources, start, places            what a run in this mode has open, and needs of Spark

A reader starts with `align`, then `epochs`, then `loop`.
"""
