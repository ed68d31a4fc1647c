"""A call over gRPC of which nobody knows whether it arrived."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from topo.tracking.transport import AckerTarget, GrpcTransport, Unreachable

_SECS = 30.0


@pytest.mark.parametrize("ackers", [1, 2])
def test_a_call_whose_channel_is_closed_meanwhile_may_have_arrived(ackers: int) -> None:
    """One acker's calls are made where they are waited for, those at several beside each other."""
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as threads:
        silent.settimeout(_SECS)
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        transport = GrpcTransport(AckerTarget("words", "secret", (address,) * ackers))
        call = threads.submit(lambda: transport.start(0, "Status", b"", _SECS).result())
        with silent.accept()[0]:  # it is under way
            transport.close()
            with pytest.raises(Unreachable, match="cancelled"):
                call.result(_SECS)
