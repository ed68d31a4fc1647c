"""The OpenAPI document, and answers of the server to requests that are made up from it."""

from __future__ import annotations

import http.client
from typing import Any
from urllib.parse import urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.property.scale import scaled
from tests.ui.conftest import Serve, Site
from tests.ui.worlds import World
from topo import __version__
from topo.manage.api import Management
from topo.ui.api import endpoints
from topo.ui.openapi import openapi

EXAMPLES = scaled(12)
"""Of each operation."""
SUBMITS = ("POST /api/topologies", "POST /api/submissions")


def test_every_endpoint_is_described(world: World) -> None:
    table = endpoints(Management(world.registry), allow_submit=True)
    document = openapi(table)
    assert document["info"]["version"] == __version__
    described = {(method.upper(), path) for path, of in document["paths"].items() for method in of}
    assert described == {(one.method, one.path) for one in table}
    row = document["components"]["schemas"]["TopologyRow"]
    assert row["properties"]["workers"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert "last ten minutes" in row["properties"]["acked"]["description"]
    kill = document["paths"]["/api/topologies/{name}/kill"]["post"]
    assert set(kill["responses"]) >= {"202", "401", "403", "404", "409"}


@pytest.mark.parametrize("role", ["view", "operate"])
def test_made_up_requests_are_answered_as_described(world: World, serve: Serve, role: str) -> None:
    world.add("words")
    site = serve(allow_submit=True)
    with site.client() as client:
        document = client.get("/api/openapi.json").json()
    for path in [path for path, of in document["paths"].items() if path.endswith("events")]:
        del document["paths"][path]  # their answers have no end
    schema = schemathesis.openapi.from_dict(document)
    schema.config.base_url = site.url
    headers = {"Authorization": f"Bearer {site.server.tokens.of(role)}"}
    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            # No text that is made up is a topology, though it fits the description of one.
            is_submission = case.operation.label in SUBMITS
            excluded = [positive_data_acceptance] if is_submission else []
            case.call_and_validate(headers=headers, excluded_checks=excluded)

        ask()


@pytest.mark.parametrize(
    "request_line",
    [
        b"GET /%00 HTTP/1.1",
        b"GET /static/../security.py HTTP/1.1",
        b"GET /static/%2e%2e/security.py HTTP/1.1",
        b"GET /static/..%2fsecurity.py HTTP/1.1",
        b"GET //api/topologies HTTP/1.1",
        b"GET http://evil.example/api/topologies HTTP/1.1",
        b"BREW /api/topologies HTTP/1.1",
        b"GET /api/topologies/%ff/plan HTTP/1.1",
        b"GET /api/topologies/..%2f..%2f HTTP/1.1",
    ],
)
def test_odd_requests_get_an_answer_that_tells_nothing(
    world: World, site: Site, request_line: bytes
) -> None:
    world.add("words")
    token = site.server.tokens.of("operate")
    where = urlsplit(site.url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=10)
    connection.connect()
    headers = f"Host: {where.netloc}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    connection.sock.sendall(request_line + b"\r\n" + headers.encode())
    answer = b""
    while chunk := connection.sock.recv(65536):
        answer += chunk
    connection.close()
    status = int(answer.split()[1])
    assert status in (400, 401, 404, 405, 421)
    assert b"Traceback" not in answer
    assert b"class Guard" not in answer
