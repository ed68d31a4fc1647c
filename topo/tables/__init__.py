"""Tables: the latest value of each key, kept up to date by a stream of changes.

A table is fed by *changes*: a row replaces the one with the same key, and a deletion removes it.
What leaves a bolt with tables is a changelog of `(key, old, new)`, at most one change for each key
and batch, so nobody sees a result half done.

- `table`, `lookup`: what is declared of a table, and rows of a stream that look it up
- `stores`, `versions`: what is kept of a table, the latest rows or their history
- `expression`, `changelog`: tables with the same key in one bolt, joined with each other
- `leaving`, `groups`, `by_hand`: rows of a table in groups, and their aggregates
- `foreign`: a table joined with the table that its values point to
"""
