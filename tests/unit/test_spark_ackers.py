"""The ackers in the driver: where they listen, what workers get of their secrets, who is let in."""

from __future__ import annotations

import pickle
from typing import Any

import grpc
import pytest

from tests.acker_calls import PLAN
from topo.config import Config
from topo.config.masters import join_address, split_address
from topo.engine.spark.driver.ackers import Ackers, _called, tls_of
from topo.errors import AckerError, ConfigError
from topo.runtime.slot import full_conf
from topo.tracking.client import AckerControl
from topo.tracking.epochs import Tracking
from topo.tracking.security import TOKEN_KEY, TOPOLOGY_KEY
from topo.tracking.server import SERVICE_NAME, AckerServer
from topo.tracking.transport import GrpcTransport
from topo.tracking.verdicts import reasons_bytes

PREFIX = "topology.acker.tls."


def conf(**settings: Any) -> dict[str, Any]:
    return full_conf(Config({key.replace("_", "."): value for key, value in settings.items()}))


@pytest.fixture
def files(tmp_path: Any) -> dict[str, str]:
    made = {}
    for name in ("certificate", "key", "ca", "client.certificate", "client.key"):
        (tmp_path / name).write_text(f"the {name}")
        made[f"{PREFIX}{name}"] = str(tmp_path / name)
    return made


def chosen(files: dict[str, str], *names: str) -> dict[str, Any]:
    return full_conf(Config({f"{PREFIX}{name}": files[f"{PREFIX}{name}"] for name in names}))


def test_the_ackers_key_stays_with_the_driver(files: dict[str, str]) -> None:
    for names in (("certificate", "key"), ("certificate", "key", "ca")):
        server, client = tls_of(chosen(files, *names))
        assert server is not None
        assert client is not None
        assert (server.certificate, server.key) == (b"the certificate", b"the key")
        assert server.ca is None, "without certificates of clients none is asked for"
        assert (client.certificate, client.key) == (None, None)
        assert client.ca == (b"the ca" if "ca" in names else None)
    both = tls_of(chosen(files, *(name.removeprefix(PREFIX) for name in files)))
    assert both[0] is not None
    assert both[1] is not None
    assert both[0].ca == b"the ca"
    assert (both[1].certificate, both[1].key) == (b"the client.certificate", b"the client.key")
    assert tls_of(conf()) == (None, None)


@pytest.mark.parametrize(
    "names",
    [("ca",), ("client.certificate", "client.key"), ("ca", "client.certificate", "client.key")],
)
def test_tls_that_would_encrypt_nothing_is_refused(
    files: dict[str, str], names: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError, match="nothing would be encrypted"):
        tls_of(chosen(files, *names))


def test_workers_cannot_register_topologies() -> None:
    ackers = Ackers("words", conf(), "")
    try:
        transport = GrpcTransport(ackers.target)
        lease = AckerControl(ackers.target, transport).register(PLAN, 0, "checkpoint")
        transport.close()
    finally:
        ackers.close()
    assert ackers.target.admission
    assert ackers.target.admission.encode() not in pickle.dumps(lease)
    assert ackers.target.token.encode() in pickle.dumps(lease)


def test_the_driver_speaks_to_its_own_ackers_without_a_network(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ackers = Ackers("words", conf(topology_acker_executors=2), "")
    control = ackers.control()
    lease = control.register(PLAN, 0, "checkpoint")
    ackers.close()  # nobody listens any more
    assert lease.rebuilds
    assert len(lease.incarnations) == 2
    assert control.status(0).next_batch == 0
    monkeypatch.setattr(Tracking, "figures", lambda *given: 1 / 0)
    with pytest.raises(AckerError, match="internal: ZeroDivisionError") as raised:
        control.status()
    assert raised.value.code == "acker-failed"
    assert caplog.messages == ["Status failed", "Status failed"], "one of each acker"


@pytest.mark.parametrize("bind", ["::1", "[::1]", "[::1]:0", "127.0.0.1", "0.0.0.0", "0.0.0.0:0"])
def test_workers_are_told_an_address_that_they_can_call(bind: str) -> None:
    try:
        ackers = Ackers("words", conf(topology_acker_bind=bind), "")
    except AckerError:
        assert "::" in bind, "a machine without IPv6"
        return
    try:
        (address,) = ackers.target.addresses
        host, port = split_address(address)
        assert host.strip("[]") not in ("0.0.0.0", "::", "")
        assert port > 0
        transport = GrpcTransport(ackers.target)
        AckerControl(ackers.target, transport).register(PLAN, 0, "checkpoint")
        transport.close()
    finally:
        ackers.close()


def test_addresses() -> None:
    assert _called("0.0.0.0", "driver-7") == "driver-7"
    assert _called("[::]", "") == "127.0.0.1"
    assert _called("10.0.0.7", "driver-7") == "10.0.0.7"
    assert join_address("::1", 7) == "[::1]:7"
    assert join_address("[::1]", 7) == "[::1]:7"
    assert join_address("h", 7) == "h:7"


def test_a_stranger_is_turned_away_before_his_message_is_read() -> None:
    read: list[str] = []
    with AckerServer(admission="secret") as server:
        handle = server.service.handle

        def noting(method: str, request: bytes, metadata: Any, secs: float | None = None) -> bytes:
            read.append(method)
            return handle(method, request, metadata, secs)

        server.service.handle = noting  # type: ignore[method-assign]
        with grpc.insecure_channel(server.address) as channel:
            for method in ("Register", "Stage", "Status"):
                call = channel.unary_unary(f"/{SERVICE_NAME}/{method}")
                with pytest.raises(grpc.RpcError) as refused:
                    call(
                        b"x" * 1_000_000,
                        metadata=[(TOPOLOGY_KEY, b"words"), (TOKEN_KEY, "a guess")],
                        timeout=30,
                    )
                assert refused.value.code() is not grpc.StatusCode.INTERNAL
                with pytest.raises(grpc.RpcError):
                    call(b"x" * 1_000_000, timeout=30)
    assert read == []


def test_what_reasons_take_is_counted() -> None:
    assert reasons_bytes([]) == 0
    assert reasons_bytes(["timeout"] * 1000) == 100_007
    assert reasons_bytes([f"{n:01000}" for n in range(1000)]) == 1_100_000
