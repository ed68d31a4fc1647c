"""Kinesis, SQS and S3 as moto plays them: over real HTTP, in a thread of the tests' process."""

from __future__ import annotations

import logging
import uuid
from typing import Any

from tests.servers.processes import missing
from topo.connectors import Secret


class AwsServer:
    """A server of its own, with what tests ask of it."""

    def __init__(self, server: Any) -> None:
        self._server = server
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for every request
        server.start()
        host, port = server.get_host_and_port()
        self.options: dict[str, Any] = {
            "endpoint_url": f"http://{host}:{port}",
            "region_name": "eu-west-1",
            "aws_access_key_id": Secret("a"),
            "aws_secret_access_key": Secret("b"),
        }

    def client(self, service: str) -> Any:
        import boto3

        options = self.options
        return boto3.client(
            service,
            endpoint_url=options["endpoint_url"],
            region_name=options["region_name"],
            aws_access_key_id="a",
            aws_secret_access_key="b",
        )

    def stream(self, shards: int = 1) -> str:
        """Make a stream with a name of its own."""
        name = f"s{uuid.uuid4().hex[:12]}"
        client = self.client("kinesis")
        client.create_stream(StreamName=name, ShardCount=shards)
        client.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 0})
        return name

    def queue(self, **attributes: str) -> str:
        """Make a queue, and return its address."""
        name = f"q{uuid.uuid4().hex[:12]}{'.fifo' if attributes else ''}"
        made = self.client("sqs").create_queue(QueueName=name, Attributes=attributes)
        return str(made["QueueUrl"])

    def bucket(self) -> str:
        """Make a bucket with a name of its own."""
        name = f"b{uuid.uuid4().hex[:12]}"
        place = {"LocationConstraint": self.options["region_name"]}
        self.client("s3").create_bucket(Bucket=name, CreateBucketConfiguration=place)
        return name

    def stop(self) -> None:
        self._server.stop()


def start() -> AwsServer:
    """Start a server; skip the test where moto is not installed."""
    try:
        from moto.server import ThreadedMotoServer
    except ImportError:
        missing("moto")
    return AwsServer(ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False))
