"""Tracking of tuple trees from end to end: ids, trees, the ledger, and the acker service.

    ids, trees                          edge ids, and the tuple trees within one execution
    pages, holders, verdicts, ledger    pure, and without gRPC: the sums and their outcome
    plan, refusals, epochs              one topology on one acker: epochs, batches, fence
    packing, security, service          calls as bytes: access, limits, waiting
    server, exposition, figures         the service on gRPC, its figures
    transport, client                   the callers

A reader starts with `ledger`, then `epochs`, then `client`.
"""

import topo.forks  # noqa: F401
