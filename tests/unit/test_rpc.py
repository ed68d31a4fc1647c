"""Callers that hold up a gRPC service: those without a token, and those that never say anything."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from topo.rpc import Doorkeeper, Health, Service
from topo.tracking.server import SERVICE_NAME, AckerServer
from topo.tracking.service import Limits


@contextmanager
def silent_calls(address: str, method: str, count: int) -> Iterator[list[Any]]:
    """Open calls that send their head and no message."""
    over = threading.Event()

    def nothing() -> Iterator[bytes]:
        over.wait()
        yield from ()

    with grpc.insecure_channel(address) as channel:
        call = channel.stream_unary(method)
        calls = [call.future(nothing()) for _ in range(count)]
        try:
            yield calls
        finally:
            over.set()
            for each in calls:
                each.cancel()


@pytest.mark.parametrize(
    ("method", "code"),
    [
        (f"/{SERVICE_NAME}/Begin", grpc.StatusCode.UNAUTHENTICATED),
        ("/grpc.health.v1.Health/Check", grpc.StatusCode.OK),
    ],
)
def test_strangers_that_say_nothing_hold_no_thread_of_an_acker(
    method: str, code: grpc.StatusCode
) -> None:
    with AckerServer(limits=Limits(waiting=1)) as server:
        silent = 4 * 33  # four times its threads
        with silent_calls(server.address, method, silent) as calls:
            assert {call.code() for call in calls} <= {code, grpc.StatusCode.RESOURCE_EXHAUSTED}
            with grpc.insecure_channel(server.address) as channel:
                stub = health_pb2_grpc.HealthStub(channel)
                reply = stub.Check(health_pb2.HealthCheckRequest(), timeout=30)
                assert reply.status == health_pb2.HealthCheckResponse.SERVING


@contextmanager
def echo(message_secs: float) -> Iterator[str]:
    """A service of one thread, whose callers need no token."""
    server = grpc.server(
        ThreadPoolExecutor(1), interceptors=[Doorkeeper("echo", lambda method, metadata: None)]
    )
    service = Service("echo", {"Say": lambda message, context: message}, message_secs)
    health = Health()
    server.add_generic_rpc_handlers((service.handler, health.handler))
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    service.start()
    health.start()
    try:
        yield address
    finally:
        health.stop()
        server.stop(None).wait()
        service.stop()


def test_a_message_that_does_not_come_is_not_waited_for_for_ever() -> None:
    with (
        echo(message_secs=0.05) as address,
        silent_calls(address, "/echo/Say", 2) as calls,
        grpc.insecure_channel(address) as channel,
    ):
        assert [call.code() for call in calls] == [grpc.StatusCode.CANCELLED] * 2
        assert channel.unary_unary("/echo/Say")(b"hello", timeout=30) == b"hello"


def test_a_call_without_a_message_is_refused() -> None:
    with echo(message_secs=60) as address, grpc.insecure_channel(address) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.stream_unary("/echo/Say")(iter(()), timeout=30)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_watchers_of_health_hold_no_thread_and_are_limited() -> None:
    with echo(message_secs=60) as address, grpc.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)

        def watch() -> Any:
            return stub.Watch(health_pb2.HealthCheckRequest(), timeout=60)

        watchers = [watch() for _ in range(64)]
        assert {next(watcher).status for watcher in watchers} == {
            health_pb2.HealthCheckResponse.SERVING
        }
        assert watch().code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        for watcher in watchers:
            watcher.cancel()
        while not answers(watch()):
            pass  # the server hears of it soon


def test_watchers_that_leave_do_not_hold_up_the_end() -> None:
    for _ in range(5):
        with echo(message_secs=60) as address, grpc.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            watchers = [stub.Watch(health_pb2.HealthCheckRequest(), timeout=60) for _ in range(60)]
            assert all(next(watcher) for watcher in watchers)
            for watcher in watchers:
                watcher.cancel()


def test_watchers_that_come_last_do_not_hold_up_the_end() -> None:
    for _ in range(30):
        with echo(message_secs=60) as address, grpc.insecure_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            watchers = [stub.Watch(health_pb2.HealthCheckRequest(), timeout=60) for _ in range(20)]
            assert next(watchers[0])  # the others may be told of both states at once


def answers(watcher: Any) -> bool:
    try:
        return bool(next(watcher))
    except grpc.RpcError:
        return False
