"""MongoDB's protocol over TCP on loop-back: writes, and the change streams of a replica set.

It knows what `MongoChanges` and `MongoBolt` send, and answers as MongoDB documents it. Each write
is a change, whose token is its number.
"""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import bson

_HEADER = struct.Struct("<iiii")
_QUERY, _REPLY, _MESSAGE = 2004, 1, 2013
_FIRST_SECOND = 1_700_000_000


class MongoServer:
    """The server: documents by collection and id, and the log of what was done to them."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.collections: dict[str, dict[Any, dict[str, Any]]] = {}
        self.log: list[dict[str, Any]] = []
        self.forgotten = 0
        """So many changes are in the log no longer."""
        self.requests: list[int] = []
        """The number of documents of each write."""
        self.answers: dict[str, Callable[[Any], dict[str, Any]]] = {}
        """Answers to commands that are not to be done."""
        self.busy = 0
        """So many more documents are in conflict with another write."""
        self.unique = ""
        """A field of which no two documents may have the same value."""
        self.answers_then = 10**9
        """After so many writes it does what is asked, and its answer is lost."""
        self.repeated = 0
        """So many documents were written as they were already."""
        self.opened: list[dict[str, Any]] = []
        """How change streams were opened."""
        self._cursors: dict[int, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        server = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                if context is None:
                    server.serve(self.request)
                    return
                # A client that does not trust it hangs up.
                with (
                    contextlib.suppress(OSError),
                    context.wrap_socket(self.request, server_side=True) as connection,
                ):
                    server.serve(connection)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self.url = f"mongodb://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self.drop_connections()
        self._server.server_close()

    def drop_connections(self) -> None:
        """End all connections, and forget the cursors."""
        with self._lock:
            self._cursors.clear()
            for connection in self._connections:
                connection.shutdown(socket.SHUT_RDWR)

    # -- what tests do ------------------------------------------------------------------------

    def values(self, name: str) -> list[dict[str, Any]]:
        return [*self.collections.get(name, {}).values()]

    def insert(self, name: str, *documents: dict[str, Any]) -> None:
        for document in documents:
            self._apply("insert", name, document["_id"], document)

    def change(self, op: str, name: str, key: Any = None, **parts: Any) -> None:
        """Log a change that no command makes here."""
        with self._lock:
            self._log(op, name, key, **parts)

    # -- the protocol -------------------------------------------------------------------------

    def serve(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.add(connection)
        try:
            while (head := _received(connection, _HEADER.size)) is not None:
                length, number, _, kind = _HEADER.unpack(head)
                body = _received(connection, length - _HEADER.size)
                if body is None:
                    return
                command = _command(kind, body)
                answer = self._answer(command)
                if len(self.requests) > self.answers_then:
                    self.answers_then = 10**9
                    return
                connection.sendall(_packed(kind, number, bson.encode(answer)))
        except OSError:
            return
        finally:
            with self._lock:
                self._connections.discard(connection)

    def _answer(self, command: dict[str, Any]) -> dict[str, Any]:
        name = next(iter(command))
        if name in self.answers:
            return self.answers[name](command)
        if name.lower() in ("hello", "ismaster"):
            return {
                "isWritablePrimary": True,
                "ismaster": True,
                "helloOk": True,
                "maxBsonObjectSize": 16 << 20,
                "maxMessageSizeBytes": 48_000_000,
                "maxWriteBatchSize": 100_000,
                "minWireVersion": 0,
                "maxWireVersion": 21,
                "ok": 1,
            }
        if name in ("insert", "update", "delete"):
            return self._written(name, command)
        if name == "aggregate":
            return self._watched(command)
        if name == "getMore":
            return self._more(command["getMore"])
        return {"ok": 1}

    # -- writes -------------------------------------------------------------------------------

    def _written(self, name: str, command: dict[str, Any]) -> dict[str, Any]:
        items = command["documents" if name == "insert" else f"{name}s"]
        self.requests.append(len(items))
        faults: list[dict[str, Any]] = []
        for place, item in enumerate(items):
            code, words = self._done(name, command[name], item)
            if code:
                fault: dict[str, Any] = {"index": place, "code": code, "errmsg": words}
                if code == 11000:
                    fault["keyPattern"] = {words: 1}
                faults.append(fault)
                if command.get("ordered", True):
                    break
        return {"ok": 1, "n": len(items) - len(faults), "nModified": 0, "writeErrors": faults}

    def _done(self, name: str, collection: str, item: dict[str, Any]) -> tuple[int, str]:
        if self.busy > 0:
            self.busy -= 1
            return 112, "WriteConflict"
        there = self.collections.setdefault(collection, {})
        if name == "insert":
            if item["_id"] in there:
                return 11000, "_id"
            return self._apply("insert", collection, item["_id"], item)
        query = item["q"]
        key = query["_id"]
        if name == "delete":
            if key in there:
                return self._apply("delete", collection, key, None)
            return 0, ""
        if key in there and not _is_older(there[key], query):
            return 11000, "_id"  # it is looked for, not found, and made anew
        document = item["u"]
        if "$set" in document:
            document = {**there.get(key, {"_id": key}), **document["$set"]}
            return self._apply("update", collection, key, document)
        return self._apply("replace", collection, key, document)

    def _apply(self, op: str, name: str, key: Any, document: Any) -> tuple[int, str]:
        with self._lock:
            there = self.collections.setdefault(name, {})
            if document is None:
                del there[key]
                self._log(op, name, key)
                return 0, ""
            if not isinstance(document.get("n", 0), int):
                return 121, "Document failed validation"
            others = (each for other, each in there.items() if other != key)
            if self.unique and document[self.unique] in [each[self.unique] for each in others]:
                return 11000, self.unique
            if there.get(key) == document:
                self.repeated += 1
                return 0, ""  # what changes nothing is no change
            op = "insert" if key not in there else op
            there[key] = document
            self._log(op, name, key, fullDocument=document)
            return 0, ""

    def _log(self, op: str, name: str, key: Any, **parts: Any) -> None:
        number = len(self.log) + 1
        if key is not None:
            parts["documentKey"] = {"_id": key}
        self.log.append(
            {
                "_id": {"_data": f"{number:06}"},
                "operationType": op,
                "clusterTime": bson.Timestamp(_FIRST_SECOND + number, 1),
                "wallTime": datetime.fromtimestamp(_FIRST_SECOND + number, UTC),
                "ns": {"db": "d", "coll": name},
                **parts,
            }
        )

    # -- change streams -----------------------------------------------------------------------

    def _watched(self, command: dict[str, Any]) -> dict[str, Any]:
        stages = command["pipeline"]
        asked = stages[0]["$changeStream"]
        self.opened.append(asked)
        with self._lock:
            at = len(self.log)
            if "startAfter" in asked or "resumeAfter" in asked:
                token = asked.get("startAfter") or asked["resumeAfter"]
                at = int(token["_data"])
            elif "startAtOperationTime" in asked:
                at = max(0, asked["startAtOperationTime"].time - _FIRST_SECOND - 1)
            if at < self.forgotten:
                return failed(286, "the resume point may no longer be in the oplog")
            names = [command["aggregate"]] if isinstance(command["aggregate"], str) else None
            ops: list[str] | None = None
            projected: list[str] = []
            for stage in stages[1:]:
                match = stage.get("$match", {})
                names = match.get("ns.coll", {}).get("$in", names)
                ops = match.get("operationType", {}).get("$in", ops)
                projected = ["_id", *stage["$project"]] if "$project" in stage else projected
            number = len(self._cursors) + 1
            size = command.get("cursor", {}).get("batchSize", 101)
            self._cursors[number] = {
                "at": at,
                "names": names,
                "ops": ops,
                "parts": projected,
                "size": size,
            }
            return {"ok": 1, "cursor": self._batch(number, "firstBatch"), "operationTime": _now()}

    def _more(self, number: int) -> dict[str, Any]:
        with self._lock:
            if number not in self._cursors:
                return failed(43, f"cursor id {number} not found")
            return {"ok": 1, "cursor": self._batch(number, "nextBatch")}

    def _batch(self, number: int, name: str) -> dict[str, Any]:
        cursor = self._cursors[number]
        batch: list[dict[str, Any]] = []
        is_over = False
        while cursor["at"] < len(self.log) and len(batch) < cursor["size"] and not is_over:
            change = self.log[cursor["at"]]
            cursor["at"] += 1
            if cursor["names"] is None or change["ns"]["coll"] in cursor["names"]:
                is_over = change["operationType"] == "invalidate"
                if cursor["ops"] is None or change["operationType"] in cursor["ops"]:
                    parts = cursor["parts"] or change
                    batch.append({name: change[name] for name in change if name in parts})
        return {
            "id": 0 if is_over else bson.Int64(number),
            "ns": "d.$cmd.aggregate",
            name: batch,
            "postBatchResumeToken": {"_data": f"{cursor['at']:06}"},
        }


def failed(code: int, words: str) -> dict[str, Any]:
    """Return the answer to a command that failed."""
    return {"ok": 0, "code": code, "errmsg": words}


def _now() -> bson.Timestamp:
    return bson.Timestamp(_FIRST_SECOND, 1)


def _is_older(document: dict[str, Any], query: dict[str, Any]) -> bool:
    """Return True if a document is one that a query with a version replaces."""
    for condition in query.get("$or", ()):
        ((name, wanted),) = condition.items()
        value = document.get(name)
        if value is None if wanted is None else value is not None and value < wanted["$lt"]:
            return True
    return "$or" not in query


def _received(connection: socket.socket, size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        piece = connection.recv(size - len(data))
        if not piece:
            return None
        data += piece
    return data


def _command(kind: int, body: bytes) -> dict[str, Any]:
    if kind == _QUERY:
        start = body.index(b"\0", 4) + 9
        return next(_documents(body[start:]))
    command: dict[str, Any] = {}
    at = 4
    while at < len(body):
        size = struct.unpack_from("<i", body, at + 1)[0]
        section = body[at + 1 : at + 1 + size]
        if body[at] == 0:
            command = {**bson.decode(section), **command}
        else:
            end = section.index(b"\0", 4)
            command[section[4:end].decode()] = [*_documents(section[end + 1 :])]
        at += 1 + size
    return command


def _documents(data: bytes) -> Iterator[dict[str, Any]]:
    while data:
        size = struct.unpack_from("<i", data)[0]
        yield bson.decode(data[:size])
        data = data[size:]


def _packed(kind: int, number: int, document: bytes) -> bytes:
    if kind == _QUERY:
        body = struct.pack("<iqii", 8, 0, 0, 1) + document
        return _HEADER.pack(_HEADER.size + len(body), 0, number, _REPLY) + body
    body = b"\0\0\0\0\0" + document
    return _HEADER.pack(_HEADER.size + len(body), 0, number, _MESSAGE) + body
