"""Indexes over HTTP on loop-back: bulk requests as Elasticsearch and OpenSearch answer them."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.connectors.serving import Serving


class Elasticsearch(Serving):
    """The server: documents by index and id, each with its version."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, tuple[int, dict[str, Any]]]] = {}
        self.requests: list[int] = []
        """The number of documents of each."""
        self.busy = 0
        """So many more documents are answered by 429."""
        self.status = 0
        """Answers all requests, if it is not 0."""
        self.makes_indexes = True
        self.login: tuple[str, str] | None = None
        self.answers_then = 10**9
        """After so many requests it takes what comes, and its answer is lost."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                size = int(self.headers.get("content-length", 0))
                body = self.rfile.read(size)
                status, answer = server.answer(self.path, body, self.headers)
                if len(server.requests) > server.answers_then:
                    server.answers_then = 10**9
                    self.close_connection = True
                    return
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.serve(Handler)

    def values(self, index: str) -> list[dict[str, Any]]:
        return [document for _, document in self.documents.get(index, {}).values()]

    def answer(self, path: str, body: bytes, headers: Any) -> tuple[int, Any]:
        if self.status:
            return self.status, {"error": {"type": "cluster", "reason": "not now"}}
        if self.login is not None:
            pair = base64.b64encode(":".join(self.login).encode()).decode()
            if headers.get("authorization") != f"Basic {pair}":
                return 401, {"error": {"type": "security_exception", "reason": "who are you?"}}
        if not path.startswith("/_bulk"):
            return 404, {"error": "no handler found"}
        items = [self._done(*each) for each in _actions(body)]
        self.requests.append(len(items))
        errors = any(next(iter(item.values()))["status"] > 299 for item in items)
        return 200, {"errors": errors, "items": items}

    def _done(self, mode: str, action: dict[str, Any], document: Any) -> dict[str, Any]:
        status, error = self._apply(mode, action, document)
        result: dict[str, Any] = {"status": status}
        if error:
            result["error"] = {"type": error, "reason": "as scripted"}
        return {mode: result}

    def _apply(self, mode: str, action: dict[str, Any], document: Any) -> tuple[int, str]:
        if self.busy > 0:
            self.busy -= 1
            return 429, "es_rejected_execution_exception"
        name = action["_index"]
        if name not in self.documents and not self.makes_indexes:
            return 404, "index_not_found_exception"
        index = self.documents.setdefault(name, {})
        number = action.get("_id", f"own-{len(index)}")
        version, there = index.get(number, (0, None))
        new = action.get("version", version + 1)
        if "version" in action and there is not None and new <= version:
            return 409, "version_conflict_engine_exception"
        if mode == "create" and there is not None:
            return 409, "version_conflict_engine_exception"
        if mode == "delete":
            index.pop(number, None)
            return (200 if there is not None else 404), ""
        if mode == "update":
            document = {**(there or {}), **document["doc"]}
        if not isinstance(document.get("n", 0), int):
            return 400, "document_parsing_exception"
        index[number] = (new, document)
        return (201 if there is None else 200), ""


def _actions(body: bytes) -> Iterator[tuple[str, dict[str, Any], Any]]:
    lines = iter(body.splitlines())
    for line in lines:
        ((mode, action),) = json.loads(line).items()
        yield mode, action, None if mode == "delete" else json.loads(next(lines))
