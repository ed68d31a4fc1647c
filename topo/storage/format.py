"""The number of the format of saved state, which stands beside every checkpoint.

The records of a task are named blobs: `core` (positions, groupers, held tuples), `attributes`
(plain attributes), `state/N` and `pending/N` (logs of keyed state and of pending messages). Held
tuples pickle as `topo.tuples.Tuple`, and frames begin with a number of `wire/payload.py`.

Whoever changes what is saved so that an earlier topo's records would be misread gives the format
the next number: an earlier checkpoint is then refused by name, before anything is read. A golden
checkpoint of each format that is still read stands in `tests/unit/golden`.
"""

FORMAT = 3
