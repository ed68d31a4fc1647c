"""Access to topologies, and the headers of every answer."""

from __future__ import annotations

import json
import socket
import stat
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.ui.conftest import Serve, Site
from tests.ui.worlds import World
from topo.errors import ConfigError
from topo.manage.registry import Registry
from topo.serving.access import Refused
from topo.ui.audit import AuditLog
from topo.ui.security import Guard, Tokens, host_names
from topo.ui.server import Options, Server

KILL = "/api/topologies/words/kill"


def test_nothing_is_told_without_a_token(world: World, site: Site) -> None:
    run = world.add("words")
    paths = ["/api/topologies", "/api/topologies/words", "/api/events", "/metrics", "/api/session"]
    paths += ["/api/v1/topology/summary", "/api/openapi.json", "/api/topologies/words/logs"]
    with site.client(None) as client:
        for path in paths:
            assert (path, client.get(path).status_code) == (path, 401)
            wrong = client.get(path, headers={"Authorization": "Bearer guess"})
            assert (path, wrong.status_code) == (path, 401)
            odd = client.get(path, headers=[(b"Authorization", "Bearer gu\u00e9ss".encode())])
            assert (path, odd.status_code) == (path, 401)
        assert client.post(KILL).status_code == 401
        for path in ("/", "/healthz", "/static/app.js"):
            assert run.id not in client.get(path).text
    assert world.drivers["words"].status_now == "ACTIVE"


def test_tokens_are_files_of_their_owner(site: Site, world: World) -> None:
    path = world.registry.home / "ui.token"
    token = site.server.tokens.of("operate")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Tokens(world.registry.home).of("operate") == token != site.server.tokens.of("view")
    with site.client() as client, site.browser() as browser:
        assert client.get("/api/session").json()["role"] == "operate"
        Tokens(world.registry.home).renew()
        assert client.get("/api/session").status_code == 401
        assert browser.get("/api/session").status_code == 401
    path.chmod(0o644)
    with pytest.raises(Refused, match="readable by others"):
        Tokens(world.registry.home).of("view")


def test_the_link_logs_a_browser_in(world: World, site: Site) -> None:
    world.add("words")
    with httpx.Client(base_url=site.url) as client:
        answer = client.get(site.server.link("operate"))
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert site.server.tokens.of("operate") not in cookie
        assert client.get("/api/topologies").status_code == 200
        assert client.get("/login?token=wrong").headers["location"] == "/"


def test_the_form_logs_in_from_these_pages_only(site: Site) -> None:
    token = {"token": site.server.tokens.of("view")}
    with httpx.Client(base_url=site.url) as client:
        assert client.post("/login", json=token).status_code == 403
        elsewhere = client.post("/login", json=token, headers={"Origin": "http://evil.example"})
        assert elsewhere.status_code == 403
        ours = {"Origin": site.url}
        assert client.post("/login", json={"token": "wrong"}, headers=ours).status_code == 401
        assert client.post("/login", content=b"token", headers=ours).status_code == 400
        assert client.post("/login", json=token, headers=ours).status_code == 200
        session = client.get("/api/session").json()
        assert (session["role"], session["read_only"]) == ("view", True)


def test_a_change_by_cookie_needs_the_csrf_value_and_our_origin(world: World, site: Site) -> None:
    world.add("words")
    with site.browser() as browser, site.browser() as other:
        csrf = browser.get("/api/session").json()["csrf"]
        others = other.get("/api/session").json()["csrf"]
        ours = {"Origin": site.url}
        refused: list[dict[str, Any]] = [
            {},
            ours,
            {"X-Topo-CSRF": csrf},
            {**ours, "X-Topo-CSRF": "guess"},
            {**ours, "X-Topo-CSRF": others},
            {"Origin": "http://evil.example", "X-Topo-CSRF": csrf},
            {"Origin": "null", "X-Topo-CSRF": csrf},
            {"Origin": site.url.replace("http:", "https:"), "X-Topo-CSRF": csrf},
            {"Origin": "http://127.0.0.1", "X-Topo-CSRF": csrf},
        ]
        for headers in refused:
            answer = browser.post(KILL, headers=headers)
            assert (headers, answer.status_code) == (headers, 403)
        assert world.drivers["words"].status_now == "ACTIVE"
        done = browser.post(KILL, headers={**ours, "X-Topo-CSRF": csrf})
        assert (done.status_code, world.drivers["words"].status_now) == (202, "KILLED")


def test_a_script_with_a_token_needs_no_csrf_value(world: World, site: Site) -> None:
    world.add("words")
    with site.client() as client:
        assert client.post(KILL).status_code == 202


def test_a_viewer_changes_nothing(world: World, site: Site) -> None:
    world.add("words")
    with site.client("view") as client, site.browser("view") as browser:
        csrf = browser.get("/api/session").json()["csrf"]
        headers = {"Origin": site.url, "X-Topo-CSRF": csrf}
        assert browser.post(KILL, headers=headers).status_code == 403
        for path in (KILL, "/api/topologies/words/deactivate", "/api/v1/topology/words/kill/0"):
            answer = client.post(path)
            assert (path, answer.status_code) == (path, 403)
            assert "operate" in answer.json()["hint"]
    assert world.drivers["words"].status_now == "ACTIVE"


def test_read_only_pages_change_nothing_for_anybody(world: World, serve: Serve) -> None:
    world.add("words")
    site = serve(read_only=True)
    with site.client() as client:
        assert client.get("/api/session").json()["read_only"] is True
        for path in (KILL, "/api/topologies/words/activate", "/api/v1/topology/words/deactivate"):
            assert (path, client.post(path).status_code) == (path, 403)
    assert world.drivers["words"].status_now == "ACTIVE"


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1", "localhost.evil.example", "", "[::1", "a]"],
)
def test_another_host_name_is_refused(world: World, site: Site, host: str) -> None:
    world.add("words")
    with site.client() as client:
        for path in ("/", "/api/topologies", "/login", "/static/app.js"):
            assert client.get(path, headers={"Host": host}).status_code == 421
        assert client.post(KILL, headers={"Host": host}).status_code == 421
        port = site.url.rpartition(":")[2]
        assert client.get("/healthz", headers={"Host": f"localhost:{port}"}).status_code == 200
    assert world.drivers["words"].status_now == "ACTIVE"


def test_every_answer_carries_the_headers(world: World, site: Site) -> None:
    world.add("words")
    with site.client() as client:
        answers = [
            client.get(path)
            for path in ("/", "/static/app.js", "/api/topologies", "/nothing", "/api/v1/nothing")
        ]
        answers.append(client.get("/", headers={"Host": "evil.example"}))
        answers.append(client.post("/api/topologies/words/nothing"))
    for answer in answers:
        headers = answer.headers
        assert headers["content-security-policy"].startswith("default-src 'self';")
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["referrer-policy"] == "no-referrer"
        assert "server" not in headers
        assert "access-control-allow-origin" not in headers


def test_each_change_leaves_a_line(world: World, site: Site) -> None:
    world.add("words")
    with site.client("view") as viewer, site.client() as client, site.client(None) as nobody:
        viewer.post(KILL)
        nobody.post(KILL)
        client.post("/api/topologies/words/deactivate")
        client.get("/api/topologies/words")
    lines = (world.registry.home / "ui-audit.jsonl").read_text().splitlines()
    noted = [json.loads(line) for line in lines]
    assert [(line["role"], line["status"]) for line in noted] == [
        ("view", 403),
        ("", 401),
        ("operate", 202),
    ]
    assert noted[-1]["action"] == "POST /api/topologies/words/deactivate"
    assert noted[-1]["from"] == "127.0.0.1"


def test_what_is_refused_does_not_fill_the_audit_log(tmp_path: Path) -> None:
    now = 60_000.0
    audit = AuditLog(tmp_path / "audit.jsonl", lambda: now)
    line = {"user": "", "role": "", "from": "x", "action": "POST /" + "x" * 30_000, "status": 401}
    done = {**line, "role": "operate", "action": "POST /kill", "status": 202}
    for _ in range(1300):
        audit.write(line)
    audit.write(done)
    audit.write(line)
    now += 60
    audit.write(line)
    audit.close()
    noted = [json.loads(text) for text in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [each["status"] for each in noted] == [401] * 10 + [202, 401]
    assert [each.get("refused_before") for each in noted[9:]] == [None, 1290, 1]
    assert max(len(each["action"]) for each in noted) == 300


def test_an_audit_log_is_never_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("topo.logs.capture._MOST_BYTES", 400)
    audit = AuditLog(tmp_path / "audit.jsonl")
    for number in range(100):
        audit.write({"action": f"POST /{number}", "status": 202})
    audit.close()
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 100
    assert [path.name for path in tmp_path.iterdir()] == ["audit.jsonl"]


@pytest.mark.parametrize("end", ["renew", "log out"])
def test_an_open_stream_ends_with_its_session(world: World, site: Site, end: str) -> None:
    world.add("words")
    with (
        site.browser() as browser,
        browser.stream("GET", "/api/events", timeout=60) as answer,
    ):
        lines = answer.iter_lines()
        assert next(line for line in lines if line.startswith("event:")) == "event: figures"
        if end == "renew":
            Tokens(world.registry.home).renew()
        else:
            assert browser.post("/logout").status_code == 200
        assert list(lines)[-1] == ""  # it ends
    with site.browser() as again:
        assert again.get("/api/session").status_code == 200


def test_a_session_that_was_logged_out_is_over_though_the_cookie_was_kept(site: Site) -> None:
    with site.browser() as browser:
        kept = dict(browser.cookies)
        browser.post("/logout")
    with httpx.Client(base_url=site.url, cookies=kept) as thief:
        assert thief.get("/api/session").status_code == 401


def test_servers_of_one_host_have_cookies_of_their_own(serve: Serve) -> None:
    sites = [serve(), serve()]
    with httpx.Client() as browser:  # whose cookies are by host, not by port
        for site in sites:
            browser.get(site.server.link("operate"))
        for site in sites:
            assert browser.get(f"{site.url}/api/session").status_code == 200


def test_a_proxy_names_the_user(world: World, serve: Serve) -> None:
    world.add("words")
    site = serve(behind_proxy=True, hosts=("topo.example",))
    headers = {"Host": "topo.example", "X-Forwarded-User": "ann"}
    with site.client() as client:
        assert client.get("/api/topologies", headers={"Host": "topo.example"}).status_code == 401
        assert client.get("/", headers={"Host": "topo.example"}).status_code == 401
        assert client.get("/api/session", headers=headers).json()["user"] == "ann"
        assert client.post(KILL, headers=headers).status_code == 202
    with site.client(None) as nobody:
        assert nobody.get("/api/session", headers=headers).status_code == 401
    (line,) = (world.registry.home / "ui-audit.jsonl").read_text().splitlines()
    assert json.loads(line)["user"] == "ann"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bind": "0.0.0.0:0"}, "plain text"),
        ({"bind": "192.0.2.1:0"}, "plain text"),
        ({"bind": "0.0.0.0:0", "behind_proxy": True}, "every address"),
        ({"tls_certificate": "cert.pem"}, "a certificate and its key"),
        ({"tls_certificate": "no.pem", "tls_key": "no.pem"}, "cannot read the certificate"),
        ({"bind": "localhost"}, None),
        ({"bind": "127.0.0.1:x"}, "no address"),
    ],
)
def test_addresses_that_are_refused(
    tmp_path: Path, options: dict[str, Any], words: str | None
) -> None:
    if words is None:
        server = Server(Registry(tmp_path), Options(**options))
        assert server.url.startswith("http://localhost:")
        server.close()
        return
    with pytest.raises(ConfigError, match=words):
        Server(Registry(tmp_path), Options(**{"bind": "127.0.0.1:0", **options}))


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Exception, match=f"cannot listen on 127.0.0.1:{port}"):
            Server(Registry(tmp_path), Options(bind=f"127.0.0.1:{port}"))


def test_sessions_end(tmp_path: Path) -> None:
    now = 1000.0
    guard = Guard(Tokens(tmp_path), hosts=(), clock=lambda: now)
    cookie = guard.log_in(guard.tokens.of("view"))
    assert guard.session({}, {"topo_session": cookie}).role == "view"
    role, ends, rest = cookie.split(".", 2)
    for forged in (
        f"operate.{ends}.{rest}",
        f"{role}.{int(ends) + 1}.{rest}",
        f"{role}.{ends}.",
        "view.9999999999.x.",
        "",
        "....",
        f"view.\u0661.{rest}",
    ):
        with pytest.raises(Refused):
            guard.session({}, {"topo_session": forged})
    now += 13 * 3600
    with pytest.raises(Refused, match="log in first"):
        guard.session({}, {"topo_session": cookie})


def test_the_names_a_server_answers_to() -> None:
    assert host_names("127.0.0.1", 8321) == ["127.0.0.1:8321", "[::1]:8321", "localhost:8321"]
    assert host_names("topo.example", 443) == ["topo.example:443", "topo.example"]
    assert host_names("10.0.0.7", 8321, ["ui.example", "x:90"]) == [
        "10.0.0.7:8321",
        "ui.example",
        "ui.example:8321",
        "x:90",
    ]
