"""Tracking of tuple trees: who knows when a message is done.

    edges, pages, holders, verdicts, ledger     pure, and without gRPC: the sums and their outcome
    plan, refusals, tracking                    one topology on one acker: epochs, batches, fence
    packing, security, service                  calls as bytes: who may, what fits, who waits
    server, exposition, figures                 the service on gRPC, its figures
    transport, client                           those who call

A reader starts with `ledger`, then `tracking`, then `client`.
"""

import topo.forks  # noqa: F401
