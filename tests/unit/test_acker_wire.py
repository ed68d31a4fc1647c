"""Acker and client over real connections: codes, health, TLS, stopping, and the generated code."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.acker_calls import PLAN, acked, emitted, run_batch
from tests.certificates import make_certificates, tls
from topo.config.masters import is_loopback, split_address
from topo.errors import AckerError, ConfigError
from topo.tracking.client import AckerClient, AckerControl
from topo.tracking.exchange import Cursor
from topo.tracking.exposition import Exposition
from topo.tracking.ids import Updates
from topo.tracking.security import Tls
from topo.tracking.server import SERVICE_NAME, AckerServer
from topo.tracking.service import Limits
from topo.tracking.transport import AckerFailed, AckerTarget, transport_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[AckerServer]:
    with AckerServer(limits=Limits(message_bytes=1 << 20)) as server:
        yield server


def target_of(*servers: AckerServer, tls: Tls | None = None) -> AckerTarget:
    addresses = tuple(server.address for server in servers)
    return AckerTarget("words", "secret", addresses, tls, call_secs=60.0, give_up_secs=0.0)


def register(target: AckerTarget) -> AckerClient:
    return AckerClient(AckerControl(target).register(PLAN, 0, "checkpoint"))


def test_verdicts_travel_over_three_ackers() -> None:
    with AckerServer() as one, AckerServer() as two, AckerServer() as three:
        client = register(target_of(one, two, three))
        out = Updates.concat([emitted(task, 1, 1000) for task in (1, 2, 3)])
        out.fail_roots, out.fail_reasons = out.init_roots[:2000:400], list("abcab")
        run_batch(client, 0, out, acked(out))
        start = client.begin(1, 0, [Cursor(task, 0, 0) for task in (1, 2, 3)])
        assert [len(start.verdicts[task]) for task in (1, 2, 3)] == [1000] * 3
        assert start.verdicts[1].reasons[:4] == ["a", "b", "c", None]
        assert sum(reason is None for reason in start.verdicts[2].reasons) == 998
        status = AckerControl(client.lease.target).status()
        assert (status.acked, status.failed_by) == (2995, {"failed": 5})


@pytest.mark.parametrize(
    ("metadata", "request_bytes", "method", "code"),
    [
        ([], b"", "Status", "UNAUTHENTICATED"),
        ([("topo-token", "secret")], b"", "Status", "UNAUTHENTICATED"),
        ([("topology-bin", b"words")], b"", "Status", "UNAUTHENTICATED"),
        ([("topology-bin", b"words"), ("topo-token", "x")], b"", "Status", "UNAUTHENTICATED"),
        ([("topology-bin", b"others"), ("topo-token", "secret")], b"", "Status", "NOT_FOUND"),
        ([("topology-bin", b"\xff\xfe"), ("topo-token", "secret")], b"", "Begin", "NOT_FOUND"),
        ([("topology-bin", b"w" * 2000), ("topo-token", "s")], b"", "Begin", "INVALID_ARGUMENT"),
        (None, b"", "Begin", "FAILED_PRECONDITION"),
        (None, b"\xff" * 100, "Begin", "INVALID_ARGUMENT"),
        (None, b"\xff" * 100, "Stage", "INVALID_ARGUMENT"),
        (None, b"\xff" * 100, "Register", "INVALID_ARGUMENT"),
        (None, b"x" * (2 << 20), "Stage", "RESOURCE_EXHAUSTED"),
        (None, b"", "Explode", "UNIMPLEMENTED"),
    ],
)
def test_each_wrong_call_has_its_status_code_and_changes_nothing(
    server: AckerServer,
    metadata: list[tuple[str, str | bytes]] | None,
    request_bytes: bytes,
    method: str,
    code: str,
) -> None:
    target = target_of(server)
    client = register(target)
    run_batch(client, 0, emitted(1, 1, 3))
    before = AckerControl(target).status()
    if metadata is None:
        metadata = [("topology-bin", b"words"), ("topo-token", "secret")]
    with grpc.insecure_channel(server.address) as channel:
        call = channel.unary_unary(f"/{SERVICE_NAME}/{method}")
        with pytest.raises(grpc.RpcError) as caught:
            call(request_bytes, metadata=metadata, timeout=60.0)
    assert caught.value.code() is grpc.StatusCode[code]
    assert AckerControl(target).status() == before


def test_health_follows_the_life_of_the_acker() -> None:
    server = AckerServer().start()
    with grpc.insecure_channel(server.address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for name in ("", SERVICE_NAME):
            reply = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=60.0)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE_NAME), timeout=60.0)
        states = [next(watch).status]
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        states.append(next(watch).status)
        watch.cancel()
        stopping.join()
    assert states == [
        health_pb2.HealthCheckResponse.SERVING,
        health_pb2.HealthCheckResponse.NOT_SERVING,
    ]


def test_stopping_ends_the_waiting_and_lets_it_be_answered() -> None:
    server = AckerServer(limits=Limits(wait_secs=60.0)).start()
    client = register(target_of(server))
    start = client.begin(0, 0)
    went: list[bool] = []
    waiter = threading.Thread(target=lambda: went.append(client.wait(start, 0, 60.0)))
    waiter.start()
    while not server.service._waiting:
        pass
    server.stop(grace_secs=30.0)
    waiter.join()
    assert went == [False]
    with pytest.raises(AckerError) as caught:
        client.begin(0, 0)
    assert caught.value.code == "acker-unreachable"


def test_an_acker_out_of_reach_is_named_with_since_when_and_what_happens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        target = AckerTarget("words", "secret", (address,), give_up_secs=0.1)
        with pytest.raises(AckerError) as caught:
            AckerControl(target).status()
    assert caught.value.code == "acker-unreachable"
    text = str(caught.value)
    assert f"the acker of 'words' at {address} has not answered since 2" in text
    assert "Connection refused" in text
    assert "starts again from its last commit" in text


def test_something_else_at_the_address_is_no_acker() -> None:
    from concurrent.futures import ThreadPoolExecutor

    other = grpc.server(ThreadPoolExecutor(1))
    port = other.add_insecure_port("127.0.0.1:0")
    other.start()
    try:
        with pytest.raises(AckerError, match="unimplemented") as caught:
            AckerControl(AckerTarget("words", "secret", (f"127.0.0.1:{port}",))).status()
        assert caught.value.code == "acker-failed"
    finally:
        other.stop(None).wait()


def test_channels_are_shared_within_a_process(server: AckerServer) -> None:
    target = target_of(server)
    mine = transport_of(target)
    assert transport_of(replace(target)) is mine
    later = transport_of(replace(target, token="another"))
    assert later is not mine
    with pytest.raises((AckerFailed, ValueError)):  # the channels of an earlier run are closed
        mine.start(0, "Status", b"", 1).result()


# -- addresses


def test_an_acker_that_others_can_reach_needs_an_admission_token() -> None:
    with pytest.raises(ConfigError, match="would be open to everyone"):
        AckerServer("0.0.0.0:0")
    AckerServer("0.0.0.0:0", admission="let me in")


@pytest.mark.parametrize(
    ("address", "split"),
    [
        ("127.0.0.1:7070", ("127.0.0.1", 7070)),
        ("host", ("host", 0)),
        ("[::1]:7070", ("[::1]", 7070)),
    ],
)
def test_addresses(address: str, split: tuple[str, int]) -> None:
    assert split_address(address) == split


@pytest.mark.parametrize("address", ["", ":7070", "host:x", "host:70000"])
def test_no_addresses(address: str) -> None:
    with pytest.raises(ConfigError, match="is no address to bind to"):
        split_address(address)


def test_what_is_loopback() -> None:
    assert all(map(is_loopback, ["127.0.0.1", "127.3.2.1", "localhost", "[::1]", "::1"]))
    assert not any(map(is_loopback, ["0.0.0.0", "10.0.0.1", "[::]", "example.org"]))


def test_a_taken_port_is_an_error(server: AckerServer) -> None:
    with pytest.raises(AckerError, match="cannot listen on") as caught:
        AckerServer(server.address).start()
    assert caught.value.code == "acker-bind"


# -- TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.mark.parametrize(
    ("server_ca", "client", "client_ca", "works"),
    [
        (None, None, "ca", True),
        (None, None, "other", False),
        ("ca", "client", "ca", True),
        ("ca", None, "ca", False),
        ("ca", "stranger", "ca", False),
    ],
    ids=["tls", "unknown server", "mutual", "no certificate", "certificate of a stranger"],
)
def test_tls(
    certificates: Path, server_ca: str | None, client: str | None, client_ca: str, works: bool
) -> None:
    with AckerServer(tls=tls(certificates, "server", server_ca)) as server:
        target = target_of(server, tls=tls(certificates, client, client_ca))
        if works:
            assert register(target).begin(0, 0).batch == 0
            return
        with pytest.raises(AckerError) as caught:
            register(target)
        assert caught.value.code == "acker-unreachable"


def test_a_client_without_tls_gets_nowhere_with_an_acker_that_has_it(certificates: Path) -> None:
    with (
        AckerServer(tls=tls(certificates, "server", None)) as server,
        pytest.raises(AckerError, match="has not answered"),
    ):
        register(target_of(server))


def test_a_certificate_without_its_key_and_unreadable_files_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="TLS has a certificate and no key"):
        Tls.read(certificate="some.pem")
    with pytest.raises(ConfigError, match="no such file"):
        Tls.read(ca=str(tmp_path / "none.pem"))
    assert "secret" not in repr(Tls(b"secret", b"secret", b"secret"))


# -- figures


def test_figures_are_served_for_people_and_for_prometheus(server: AckerServer) -> None:
    client = register(target_of(server))
    out = emitted(1, 1, 5)
    bad = Updates(fail_roots=out.init_roots[:2], fail_reasons=["bad", "bad"])
    run_batch(client, 0, out, Updates.concat([acked(emitted(1, 3, 1)), bad]))
    client.begin(1, 0)
    exposition = Exposition("127.0.0.1:0", server.service.figures)
    try:
        with urllib.request.urlopen(f"http://{exposition.address}/metrics", timeout=60) as page:
            lines = page.read().decode().splitlines()
        assert 'topo_acker_roots_pending{topology="words"} 2.0' in lines
        assert 'topo_acker_roots_acked_total{topology="words"} 1.0' in lines
        assert 'topo_acker_roots_failed_total{reason="failed",topology="words"} 2.0' in lines
        assert 'topo_acker_updates_total{topology="words"} 8.0' in lines
        assert "# TYPE topo_acker_roots_acked_total counter" in lines
        with urllib.request.urlopen(f"http://{exposition.address}/", timeout=60) as page:
            text = page.read().decode()
        assert text.startswith("words: batch 1, ACTIVE; 2 pending (oldest 0 s), 1 acked, 2 failed")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{exposition.address}/else", timeout=60)
    finally:
        exposition.stop()


# -- what is generated, and what is imported


def test_generating_the_protocol_again_changes_nothing(tmp_path: Path) -> None:
    pytest.importorskip("grpc_tools")
    subprocess.run(
        [ROOT / ".ci" / "generate", tmp_path],
        check=True,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
    )
    made = sorted(path.name for path in (tmp_path / "topo" / "_pb").iterdir())
    there = sorted(path.name for path in (ROOT / "topo" / "_pb").glob("*_pb2.py*"))
    assert made == there
    for name in made:
        new = (tmp_path / "topo" / "_pb" / name).read_text()
        old = (ROOT / "topo" / "_pb" / name).read_text()
        assert new == old, f"run .ci/generate: {name} is stale"


def test_the_ledger_needs_neither_grpc_nor_protobuf() -> None:
    code = (
        "import sys, topo.tracking.ledger, topo.tracking.ids\n"
        "print([name for name in ('grpc', 'google.protobuf') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)
    assert ran.stdout.strip() == b"[]"


def test_bytes_that_are_no_grpc_at_all_leave_the_acker_alive(server: AckerServer) -> None:
    target = target_of(server)
    client = register(target)
    run_batch(client, 0, emitted(1, 1, 3))
    before = AckerControl(target).status()
    host, port = split_address(server.address)
    for garbage in (os.urandom(1 << 16), b"GET / HTTP/1.1\r\n\r\n", b"\0" * 4096, b""):
        with socket.create_connection((host, port), timeout=60) as raw, suppress(OSError):
            raw.sendall(garbage)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass
    assert AckerControl(target).status() == before
