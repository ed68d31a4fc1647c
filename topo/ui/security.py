"""Access to topologies in a browser or by REST.

A token stands for a role. A browser turns its token into a cookie that lives for a while; a script
sends its token with each request. Cookies are signed with the token of their role, so that the
server keeps no sessions, only which of them were logged out, and a new token ends all of its role.

A change that comes with a cookie has to prove that it comes from these pages: its `Origin` is ours,
and it carries a value that only they can read. A request for a host name that is not ours is
refused before anything else, or a page elsewhere could give its own name to this address.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from topo.manage.files import locked, write_json
from topo.serving.access import Refused, bearer_of
from topo.tracking.security import fresh_token

VIEW, OPERATE = "view", "operate"
ROLES = (VIEW, OPERATE)
COOKIE = "topo_session"
"""The name of the cookie, for a server that has a host for itself: a port is added to it otherwise,
since browsers send a cookie to every port of its host."""
_MOST_LOGGED_OUT = 10_000
CSRF_HEADER = "x-topo-csrf"
SESSION_SECS = 12 * 3600.0
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
log = logging.getLogger("topo.ui")


class Tokens:
    """The tokens of a registry's pages, in a file that only its owner can read."""

    def __init__(self, home: Path) -> None:
        self._path = home / "ui.token"
        self._read_at: tuple[int, int] | None = None
        self._tokens: dict[str, str] = {}

    def of(self, role: str) -> str:
        """Return the token of a role; make both if there are none."""
        tokens = self._read()
        if not tokens:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with locked(self._path.with_name("ui.token.lock")):
                tokens = self._read() or self._write()
        return tokens[role]

    def renew(self) -> None:
        """Make new tokens: the old ones and every session made with them end."""
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with locked(self._path.with_name("ui.token.lock")):
            self._write()

    def role_of(self, token: str) -> str | None:
        """Return the role that `token` stands for, found in a time that tells nothing of it."""
        roles = [role for role in ROLES if hmac.compare_digest(self.of(role), _ascii(token))]
        return roles[0] if roles else None

    def _write(self) -> dict[str, str]:
        tokens = {role: fresh_token() for role in ROLES}
        write_json(self._path, tokens)
        return tokens

    def _read(self) -> dict[str, str]:
        try:
            status = self._path.stat()
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp != self._read_at:
                if status.st_mode & 0o077 or status.st_uid != os.geteuid():
                    raise Refused(
                        500, f"{self._path} is readable by others", hint=f"delete {self._path}"
                    )
                document = json.loads(self._path.read_bytes())
                tokens = {role: document[role] for role in ROLES}
                if not all(isinstance(token, str) and len(token) > 20 for token in tokens.values()):
                    raise ValueError
                self._tokens, self._read_at = tokens, stamp
        except (OSError, ValueError, KeyError, TypeError):
            return {}
        return self._tokens


@dataclass(frozen=True)
class Session:
    """The sender of a request: their role, and its proof."""

    role: str
    user: str
    by_cookie: bool
    csrf: str = ""

    @property
    def may_operate(self) -> bool:
        return self.role == OPERATE


class Guard:
    """Decides on each request; may be asked by several threads at once."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        hosts: Collection[str],
        secure: bool = False,
        behind_proxy: bool = False,
        read_only: bool = False,
        cookie: str = COOKIE,
        audit: Callable[[Mapping[str, Any]], None] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.tokens = tokens
        self.secure = secure
        self.behind_proxy = behind_proxy
        self.read_only = read_only
        self.cookie = cookie
        self._logged_out: dict[str, float] = {}  # cookies, and when they would have ended
        self._hosts = frozenset(host.lower() for host in hosts)
        self._audit = audit
        self._clock = clock

    def check_host(self, host: str) -> None:
        """Raise Refused unless `host` is one of the names these pages are served under."""
        if host.lower() not in self._hosts:
            raise Refused(
                421,
                f"these pages are not served as {host[:100]!r}",
                hint="topo ui --host NAME[:PORT] adds a name",
            )

    def user_of(self, headers: Mapping[str, str]) -> str:
        """Return the user that a proxy names; raise Refused if it has to and does not."""
        if not self.behind_proxy:
            return ""
        user = headers.get("x-forwarded-user", "")
        if not user:
            raise Refused(401, "the proxy named no user", hint="it must set X-Forwarded-User")
        return user[:200]

    def session(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> Session:
        """Return who sent a request; raise Refused if nobody knows."""
        user = self.user_of(headers)
        token = bearer_of(headers)
        if token is not None:
            role = self.tokens.role_of(token)
            if role is None:
                raise Refused(401, "unknown token", hint="topo ui token")
            return Session(role, user, by_cookie=False)
        cookie = cookies.get(self.cookie, "")
        role = self._role_in(cookie)
        if role is None:
            raise Refused(401, "log in first", hint="topo ui token prints a token")
        return Session(role, user, by_cookie=True, csrf=self._sign(role, f"csrf {cookie}"))

    def log_in(self, token: str) -> str:
        """Return the cookie of a new session for the role of `token`."""
        role = self.tokens.role_of(token)
        if role is None:
            raise Refused(401, "unknown token", hint="topo ui token prints it")
        ends = f"{role}.{int(self._clock() + SESSION_SECS)}.{fresh_token()[:12]}"
        return f"{ends}.{self._sign(role, ends)}"

    def log_out(self, cookies: Mapping[str, str]) -> None:
        """End the session of a cookie."""
        cookie, now = cookies.get(self.cookie, ""), self._clock()
        if self._role_in(cookie) is None:
            return
        ended = {**self._logged_out, cookie: now + SESSION_SECS}
        alive = [each for each, ends in ended.items() if ends > now][-_MOST_LOGGED_OUT:]
        self._logged_out = {each: ended[each] for each in alive}

    def check_change(self, session: Session, headers: Mapping[str, str]) -> None:
        """Raise Refused unless the sender may change things and the request is really theirs."""
        if self.read_only:
            raise Refused(403, "these pages are read-only", hint="topo ui without --read-only")
        if not session.may_operate:
            raise Refused(
                403, "the role 'view' cannot change anything", hint="topo ui token --role operate"
            )
        if not session.by_cookie:
            return
        self.check_origin(headers)
        if not hmac.compare_digest(_ascii(headers.get(CSRF_HEADER, "")), session.csrf):
            raise Refused(403, "the request does not carry this session's CSRF value")

    def check_origin(self, headers: Mapping[str, str]) -> None:
        """Raise Refused unless a page of ours sent the request."""
        origin = urlsplit(headers.get("origin", ""))
        scheme = "https" if self.secure else "http"
        schemes = ("http", "https") if self.behind_proxy else (scheme,)
        same = origin.netloc.lower() == headers.get("host", "").lower()
        if origin.scheme not in schemes or not same:
            raise Refused(403, "the request comes from another site")

    def note(self, session: Session, address: str, action: str, status: int) -> None:
        """Write a line about a change, done or refused."""
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "user": session.user,
            "role": session.role,
            "from": address,
            "action": action,
            "status": status,
        }
        if self._audit is not None:
            self._audit(line)

    def _role_in(self, cookie: str) -> str | None:
        role, _, rest = cookie.partition(".")
        signed, _, signature = cookie.rpartition(".")
        ends = rest.partition(".")[0]
        if (
            cookie in self._logged_out
            or role not in ROLES
            or not (ends.isascii() and ends.isdigit() and len(ends) < 16)
        ):
            return None
        good = hmac.compare_digest(_ascii(signature), self._sign(role, signed))
        return role if good and int(ends) > self._clock() else None

    def _sign(self, role: str, text: str) -> str:
        key = self.tokens.of(role).encode()
        return hmac.new(key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def host_names(host: str, port: int, named: Collection[str] = ()) -> list[str]:
    """Return the values of `Host` under which a server bound to `host` and `port` is asked for."""
    loopback = {"127.0.0.1", "localhost", "::1"}
    names = loopback if host.strip("[]") in loopback else {host.strip("[]")}
    found = [f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in sorted(names)]
    found += [name.rpartition(":")[0] for name in found] if port in (80, 443) else []
    for name in named:
        found += [name] if name.rpartition(":")[2].isdigit() else [name, f"{name}:{port}"]
    return found


HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""On every answer."""


def _ascii(text: str) -> str:
    """Return `text` as compare_digest takes it; what is not ASCII equals nothing."""
    return text if text.isascii() else ""
