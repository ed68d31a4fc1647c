"""The client of a Schema Registry: a few calls over HTTP, whose answers never change.

A schema's id says the same for ever, so each is asked for once. What is asked for later, while the
registry is away, is `Unavailable`: the record waits, and is not taken for a bad one. An id that
the registry does not know is the record's fault, and asked for again with one record in a thousand,
so that a topic full of such records does not become a storm of requests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from topo.config.secrets import Secret
from topo.connectors.addresses import check_headers, check_tls, check_url
from topo.connectors.base import check_positive
from topo.connectors.http.client import SCHEMES, Target, login_of, retry_after
from topo.connectors.remote import passes
from topo.errors import ComponentError, Unavailable

REQUIRES = "httpx>=0.28"
EXTRA = "schemas"
_ASKED_AGAIN = 1_000
"""Records with an id that is unknown, of which one has the registry asked again."""
_MOST_UNKNOWN = 10_000
_NOT_THERE = (40401, 40402, 40403)
"""The codes of a subject, a version and a schema that a registry has not got."""
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


class Reference(NamedTuple):
    """A schema that another one uses, by the name that it has there."""

    name: str
    owner: str
    """The subject that it is registered under."""
    version: int


class Schema(NamedTuple):
    """A schema as the registry keeps it."""

    type: str
    """"AVRO", "PROTOBUF" or "JSON"."""
    text: str
    references: tuple[Reference, ...] = ()

    def as_request(self) -> dict[str, Any]:
        """Return the body of a request that registers it, or looks for it."""
        body: dict[str, Any] = {"schema": self.text}
        if self.type != "AVRO":
            body["schemaType"] = self.type
        if self.references:
            body["references"] = [
                {"name": each.name, "subject": each.owner, "version": each.version}
                for each in self.references
            ]
        return body


class SchemaRegistry:
    """The address of a Schema Registry, and how it is reached.

    `user` and `password` are a login, or an API key with its secret; `headers` are sent along, such
    as `{"Authorization": Secret.env("SR_TOKEN")}`; `tls` is `{"ca": FILE, "cert": FILE,
    "key": FILE, "check": True}`. It is Confluent's protocol, which Karapace, Redpanda and Apicurio
    (at `/apis/ccompat/v7`) speak as well.
    """

    def __init__(
        self,
        url: str | Secret,
        *,
        user: str | Secret | None = None,
        password: str | Secret | None = None,
        headers: Mapping[str, str | Secret] | None = None,
        tls: Mapping[str, Any] | None = None,
        timeout_secs: float = 10.0,
    ) -> None:
        name = type(self).__name__
        check_url(name, url, SCHEMES)
        check_tls(name, tls)
        check_headers(name, {k: v for k, v in (headers or {}).items() if isinstance(v, str)})
        check_positive(name, timeout_secs=timeout_secs)
        self.url, self.login = url, login_of(name, user, password)
        self.headers, self.timeout_secs = dict(headers or {}), timeout_secs
        self.tls = None if tls is None else dict(tls)

    def connect(self, connector: str) -> Client:
        """Return a client for a connector, which asks nothing yet."""
        headers = {"Accept": f"{_CONTENT_TYPE}, application/json", **self.headers}
        target = Target(
            connector,
            self.url,
            headers,
            self.tls,
            timeout_secs=self.timeout_secs,
            auth=self.login,
            extra=EXTRA,
        )
        return Client(target)


class Client:
    """A registry as one task uses it, with what it has answered."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._by_id: dict[tuple[int, str], Schema] = {}
        self._by_version: dict[tuple[str, int, str], Schema] = {}
        self._unknown: dict[int, tuple[int, str]] = {}
        """Ids that are unknown, each with the records since it was asked for, and the reason."""

    def schema(self, schema_id: int, form: str = "") -> Schema:
        """Return a schema by its id; raise ValueError if there is none.

        `form="serialized"` asks for Protobuf's as a descriptor.
        """
        schema = self._by_id.get((schema_id, form))
        if schema is None:
            self._raise_if_unknown(schema_id)
            path = f"/schemas/ids/{schema_id}"
            answer = self._asked("GET", path, form, missing=f"schema id {schema_id}")
            if isinstance(answer, str):
                if len(self._unknown) >= _MOST_UNKNOWN:
                    self._unknown.clear()
                self._unknown[schema_id] = (1, answer)
                raise ValueError(answer)
            schema = self._by_id[schema_id, form] = _schema_in(answer)
        return schema

    def version(self, reference: Reference, form: str = "") -> Schema:
        """Return a schema that another one uses."""
        key = (reference.owner, reference.version, form)
        schema = self._by_version.get(key)
        if schema is None:
            path = f"/subjects/{_quoted(reference.owner)}/versions/{reference.version}"
            missing = f"version {reference.version} of {reference.owner!r}"
            answer = self._asked("GET", path, form, missing=missing)
            if isinstance(answer, str):
                raise ValueError(answer)
            schema = self._by_version[key] = _schema_in(answer)
        return schema

    def latest(self, subject: str) -> tuple[int, Schema]:
        """Return the newest schema of a subject, with its id."""
        path = f"/subjects/{_quoted(subject)}/versions/latest"
        answer = self._asked("GET", path, missing=f"the subject {subject!r}")
        if isinstance(answer, str):
            raise ComponentError(answer, hint="schema= and register=True register one")
        return int(answer["id"]), _schema_in(answer)

    def register(self, subject: str, schema: Schema) -> int:
        """Register a schema, if it is not; return its id."""
        return int(self._written(f"/subjects/{_quoted(subject)}/versions", subject, schema)["id"])

    def find(self, subject: str, schema: Schema) -> dict[str, Any]:
        """Return the id and version of a schema that is registered; raise if it is not."""
        return self._written(f"/subjects/{_quoted(subject)}", subject, schema)

    def _written(self, path: str, subject: str, schema: Schema) -> dict[str, Any]:
        what = f"the schema of {subject!r}"
        answer = self._asked("POST", path, body=schema.as_request(), missing=what)
        if isinstance(answer, str):
            raise ComponentError(answer, hint="register=True registers it")
        return dict(answer)

    def _raise_if_unknown(self, schema_id: int) -> None:
        count, reason = self._unknown.get(schema_id, (0, ""))
        if count % _ASKED_AGAIN:
            self._unknown[schema_id] = (count + 1, reason)
            raise ValueError(reason)

    def _asked(
        self, method: str, path: str, form: str = "", *, body: Any = None, missing: str
    ) -> Any:
        """Return an answer, or a text if the registry has not got what is asked for."""
        target = self._target
        where = f"{target.connector}: the Schema Registry at {target.shown}"
        with target.reaching():
            response = target.client.request(
                method,
                target.url.rstrip("/") + path,
                params={"format": form} if form else None,
                content=None if body is None else json.dumps(body),
                headers={} if body is None else {"Content-Type": _CONTENT_TYPE},
            )
        status, reason = response.status_code, _reason(response)
        if response.is_success:
            answer = _document(response)
            if not isinstance(answer, dict):
                raise ComponentError(
                    f"{where} answers what is no registry's answer: {response.text[:100]!r}",
                    hint="see url=; Apicurio has this protocol at /apis/ccompat/v7",
                )
            return answer
        if passes(status):
            raise Unavailable(f"{where}: HTTP {status}: {reason}", retry_after(response))
        if status == 404 and _code(response) in _NOT_THERE:
            return f"{where} does not have {missing}: {reason}"
        if status == 409:
            raise ComponentError(
                f"{where} refuses {missing}: it is not compatible with the one that is registered: "
                f"{reason}",
                hint="add fields with a default and remove none without one; or set the "
                "subject's compatibility in the registry",
            )
        if status == 422:
            raise ComponentError(f"{where} refuses {missing}: it is invalid: {reason}")
        if status in (401, 403):
            raise ComponentError(
                f"{where} refuses access: HTTP {status}: {reason}",
                hint='user= and password=Secret.env("NAME"), or headers= with a token',
            )
        raise ComponentError(f"{where}: HTTP {status} for {path}: {reason}", hint="see url=")


def _schema_in(answer: Mapping[str, Any]) -> Schema:
    references = (
        Reference(each["name"], each["subject"], int(each["version"]))
        for each in answer.get("references") or ()
    )
    return Schema(answer.get("schemaType") or "AVRO", answer["schema"], tuple(references))


def _document(response: Any) -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _code(response: Any) -> Any:
    document = _document(response)
    return document.get("error_code") if isinstance(document, dict) else None


def _reason(response: Any) -> str:
    document = _document(response)
    if isinstance(document, dict) and document.get("message"):
        return " ".join(str(document["message"]).split())[:500]
    return " ".join(response.text.split())[:200] or "no reason is given"


def _quoted(subject: str) -> str:
    return quote(subject, safe="")
