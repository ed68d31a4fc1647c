"""A Schema Registry over real HTTP on loop-back, as much of it as clients ask for.

It keeps what is registered, by subject and by id, and answers as Confluent's does, its error codes
included; `away` makes it answer 503 as a registry that has lost its Kafka.
"""

from __future__ import annotations

import base64
import json
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.connectors.serving import Serving


class Registry(Serving):
    """The server, and what it keeps."""

    def __init__(self, context: Any = None) -> None:
        self.by_id: dict[int, dict[str, Any]] = {}
        self.by_subject: dict[str, list[int]] = {}
        self.requests: list[str] = []
        self.away = False
        self.incompatible = ""
        self.login: tuple[str, str] | None = None
        self.token = ""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                self._answer(None)

            def do_POST(self) -> None:
                size = int(self.headers.get("content-length", 0))
                self._answer(json.loads(self.rfile.read(size)))

            def _answer(self, body: Any) -> None:
                registry.requests.append(f"{self.command} {unquote(self.path)}")
                status, answer = registry.answer(self.path, body, self.headers)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.serve(Handler, context)

    def put(self, subject: str, schema: str, **more: Any) -> int:
        """Register a schema; return its id."""
        own = {"schemaType": "AVRO", "references": [], **more, "schema": schema}
        known = [number for number, each in self.by_id.items() if each == own]
        number = known[0] if known else len(self.by_id) + 1
        self.by_id[number] = own
        versions = self.by_subject.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return number

    def answer(self, path: str, body: Any, headers: Any) -> tuple[int, Any]:
        parts = urlsplit(path)
        way = [unquote(part) for part in parts.path.strip("/").split("/")]
        if self.away:
            return 503, _error(50301, "the Kafka store is away")
        if not self._may_ask(headers):
            return 401, {"error_code": 401, "message": "Unauthorized"}
        match way:
            case ["schemas", "ids", number]:
                if int(number) not in self.by_id:
                    return 404, _error(40403, "Schema not found")
                return 200, self._document(int(number))
            case ["subjects", subject, "versions"] if body is not None:
                return self._registered(subject, body)
            case ["subjects", subject] if body is not None:
                return self._looked_up(subject, body)
            case ["subjects", subject, "versions", version]:
                return self._version(subject, version)
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _may_ask(self, headers: Any) -> bool:
        expected = ""
        if self.login is not None:
            pair = base64.b64encode(":".join(self.login).encode()).decode()
            expected = f"Basic {pair}"
        elif self.token:
            expected = f"Bearer {self.token}"
        return not expected or headers.get("authorization") == expected

    def _document(self, number: int) -> dict[str, Any]:
        own = dict(self.by_id[number])
        if own["schemaType"] == "AVRO":
            del own["schemaType"]  # as Confluent's leaves it out
        return own

    def _registered(self, subject: str, body: Any) -> tuple[int, Any]:
        if self.incompatible and self.by_subject.get(subject):
            return 409, _error(409, f"Schema being registered is incompatible: {self.incompatible}")
        if body.get("schemaType", "AVRO") == "AVRO":
            try:
                json.loads(body["schema"])
            except ValueError:
                return 422, _error(42201, "Invalid schema")
        more = {name: body[name] for name in ("schemaType", "references") if name in body}
        return 200, {"id": self.put(subject, body["schema"], **more)}

    def _looked_up(self, subject: str, body: Any) -> tuple[int, Any]:
        if subject not in self.by_subject:
            return 404, _error(40401, f"Subject '{subject}' not found.")
        for version, number in enumerate(self.by_subject[subject], 1):
            if self.by_id[number]["schema"] == body["schema"]:
                return 200, {"subject": subject, "id": number, "version": version}
        return 404, _error(40403, "Schema not found")

    def _version(self, subject: str, version: str) -> tuple[int, Any]:
        versions = self.by_subject.get(subject)
        if versions is None:
            return 404, _error(40401, f"Subject '{subject}' not found.")
        place = len(versions) if version == "latest" else int(version)
        if not 0 < place <= len(versions):
            return 404, _error(40402, f"Version {version} not found.")
        number = versions[place - 1]
        document = self._document(number)
        return 200, {"subject": subject, "version": place, "id": number, **document}


def _error(code: int, message: str) -> dict[str, Any]:
    return {"error_code": code, "message": message}
