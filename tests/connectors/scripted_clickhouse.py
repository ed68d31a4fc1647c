"""Tables over HTTP on loop-back: inserts as ClickHouse answers them, tokens and codes included.

The codes, and that a token makes the second insert one that is dropped, were seen with ClickHouse
26.9's own engine.
"""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.connectors.serving import Serving

_DEFINITION = "CREATE TABLE t (n Int64) ENGINE = MergeTree ORDER BY n SETTINGS {settings}"


class ClickHouse(Serving):
    """The server, and the rows of its tables."""

    def __init__(self) -> None:
        self.tables: dict[str, list[dict[str, Any]]] = {}
        self.engine, self.window = "MergeTree", 1_000
        self.inserts: list[int] = []
        """The number of rows of each insert."""
        self.tokens: set[str] = set()
        self.fails_with = (0, 0)
        """A code, and so many requests that it answers."""
        self.loses = 10**9
        """So many inserts later it takes one, and its answer is lost."""
        self.settings: dict[str, str] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                params = {k: v[0] for k, v in parse_qs(urlsplit(self.path).query).items()}
                code, text = server.answer(params, body)
                if server.loses == 0:
                    server.loses = 10**9
                    self.close_connection = True
                    return
                data = text.encode()
                self.send_response({0: 200, 516: 403, 60: 404}.get(code, 500))
                if code:
                    self.send_header("X-ClickHouse-Exception-Code", str(code))
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.serve(Handler)

    def answer(self, params: dict[str, str], body: bytes) -> tuple[int, str]:
        query = params.pop("query")
        self.settings = params
        code, count = self.fails_with
        if count:
            self.fails_with = (code, count - 1)
            return code, f"Code: {code}. DB::Exception: as scripted"
        if query.startswith("SELECT engine"):
            settings = f"non_replicated_deduplication_window = {self.window}"
            return 0, f"{self.engine}\t{_DEFINITION.format(settings=settings)}\n"
        match = re.fullmatch(r"INSERT INTO (\S+) FORMAT JSONEachRow", query)
        assert match
        return self._inserted(match[1], params["insert_deduplication_token"], body)

    def _inserted(self, table: str, token: str, body: bytes) -> tuple[int, str]:
        if table == "nowhere":
            return 60, "Code: 60. DB::Exception: Table nowhere does not exist"
        rows = [json.loads(line) for line in body.splitlines()]
        self.inserts.append(len(rows))
        for row in rows:
            if not isinstance(row.get("n", 0), int):
                return 27, "Code: 27. DB::Exception: Cannot parse input"
            if "more" in row:
                return 117, "Code: 117. DB::Exception: Unknown field found"
        self.loses -= 1
        remembers = self.window or not self.engine.startswith("Merge")
        if not (remembers and token in self.tokens):
            self.tables.setdefault(table, []).extend(rows)
        self.tokens.add(token)
        return 0, ""
