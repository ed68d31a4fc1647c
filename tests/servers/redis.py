"""Redis, with nothing kept on disk but what a test asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.servers.processes import ServerProcess, find_program, free_port


class RedisServer:
    """A server, and a client of it."""

    def __init__(self, program: str, directory: Path) -> None:
        port = free_port()
        self.url = f"redis://127.0.0.1:{port}/0"
        command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(directory)]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        self.process = ServerProcess("redis", command, directory, port)
        self.process.start()

    def client(self) -> Any:
        import redis

        return redis.Redis.from_url(self.url, decode_responses=True)


def start(directory: Path) -> RedisServer:
    """Start a server; skip the test where Redis is not installed."""
    return RedisServer(find_program("Redis", "redis-server"), directory)
