"""PostgreSQL: a cluster of its own, run by the user `postgres` where the tests run as root."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from pathlib import Path
from typing import Any

from tests.servers.processes import ServerProcess, find_program, free_port

_PLACES = [f"/usr/lib/postgresql/{version}/bin/initdb" for version in (17, 16, 15)]


class PostgresServer:
    """A server with one database, and what tests ask of it."""

    def __init__(self, programs: Path) -> None:
        # Not below pytest's directory, which other users may not enter.
        self._directory = Path(tempfile.mkdtemp(prefix="topo-postgres-"))
        self._directory.chmod(0o755)
        as_user = []
        if os.geteuid() == 0:
            shutil.chown(self._directory, "postgres")
            as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
        data, port = self._directory / "data", free_port()
        subprocess.run(
            [*as_user, str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "lab",
             "--no-sync", "-E", "UTF8", "--locale=C"],
            check=True,
            capture_output=True,
            cwd=self._directory,
        )  # fmt: skip
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._directory),
            "wal_level": "logical",
            "fsync": "off",
        }
        command = [*as_user, str(programs / "postgres"), "-D", str(data), "-p", str(port)]
        command += [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self.url = f"postgresql+psycopg://lab@127.0.0.1:{port}/postgres"
        self.process = ServerProcess("postgres", command, self._directory, port)
        self.start()

    def start(self) -> None:
        self.process.start(self._answers)

    def stop(self) -> None:
        """Stop it, and remove its data."""
        self.process.stop(signal.SIGINT)  # SIGTERM waits for clients to leave
        shutil.rmtree(self._directory, ignore_errors=True)

    def table(self, columns: str) -> str:
        """Make a table with a name of its own."""
        name = f"t{uuid.uuid4().hex[:12]}"
        self.run(f"create table {name} ({columns})")
        return name

    def run(self, *statements: str) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str) -> list[Any]:
        with self.connect() as connection:
            return list(connection.execute(query).fetchall())

    def connect(self, **more: Any) -> Any:
        import psycopg

        return psycopg.connect(self.url.replace("+psycopg", ""), **more)

    def _answers(self) -> bool:
        import psycopg

        try:
            self.rows("select 1")
        except psycopg.OperationalError:
            return False
        return True


def start() -> PostgresServer:
    """Start a server; skip the test where PostgreSQL is not installed."""
    return PostgresServer(Path(find_program("PostgreSQL", "initdb", places=_PLACES)).parent)
