"""The replication slots that topologies leave on a server, where they hold its log."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from topo.config.secrets import Secret, revealed, without_password
from topo.connectors.base import load_client
from topo.errors import Unavailable

_NAME = "PostgresChanges"
_CONNECT_SECS = 5
_FOUND = """
    select coalesce(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn), 0)::bigint, active
    from pg_replication_slots where slot_name = %s and database = current_database()"""


def leaves(url: str | Secret, slot: str | None, publication: str | None) -> dict[str, Any]:
    """Return what `left` and `drop` need to know of a component."""
    return {"by": __name__, "url": url, "slot": slot, "publication": publication}


def slot_name(given: str | None, checkpoint_id: str, component: str) -> str:
    """Return the name of a component's slot: one that was given, or one by its checkpoint."""
    own = re.sub(r"\W", "_", component.lower(), flags=re.ASCII)
    return given or f"topo_{checkpoint_id[:12].lower()}_{own}"[:63]


def driver_url(url: str | Secret) -> str:
    """Return a URL as psycopg takes it: without the name of a driver in its scheme."""
    text: str = revealed(url)
    scheme, _, rest = text.partition("://")
    return f"{scheme.partition('+')[0]}://{rest}"


def left(known: Mapping[str, Any], checkpoint_id: str, component: str) -> list[str]:
    """Return a line for the slot, if the server has it."""
    slot = slot_name(known["slot"], checkpoint_id, component)
    with _connected(known) as (connection, shown):
        found = connection.execute(_FOUND, (slot,)).fetchone()
    if found is None:
        return []
    return [f"replication slot {slot} of {shown} holds {found[0] / 1e6:,.1f} MB of log"]


def drop(known: Mapping[str, Any], checkpoint_id: str, component: str) -> list[str]:
    """Drop the slot, and its publication unless the user has named it; return what was dropped."""
    slot = slot_name(known["slot"], checkpoint_id, component)
    dropped = []
    with _connected(known) as (connection, shown):
        if connection.execute(_FOUND, (slot,)).fetchone() is not None:
            connection.execute("select pg_drop_replication_slot(%s)", (slot,))
            dropped.append(f"replication slot {slot} of {shown}")
        named = "select 1 from pg_publication where pubname = %s"
        if known["publication"] is None and connection.execute(named, (slot,)).fetchone():
            connection.execute(f'drop publication "{slot}"')
            dropped.append(f"publication {slot} of {shown}")
    return dropped


@contextmanager
def _connected(known: Mapping[str, Any]) -> Iterator[tuple[Any, str]]:
    """Give a connection, and its URL as it may be shown; raise a TopoError for what goes wrong."""
    psycopg = load_client("psycopg", _NAME, "postgres")
    url = driver_url(known["url"])
    shown = without_password(url)
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=_CONNECT_SECS) as connection:
            yield connection, shown
    except psycopg.Error as error:
        raise Unavailable(f"{shown}: {str(error).strip().partition(chr(10))[0]}") from error
