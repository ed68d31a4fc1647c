"""A database under its URL: its tables, and its errors as topo's."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from topo.config.secrets import Secret, revealed, without_password
from topo.connectors.addresses import check_form_of_url
from topo.connectors.base import load_client
from topo.connectors.remote import Remote
from topo.errors import ComponentError, did_you_mean

REQUIRES = "SQLAlchemy>=2.0"
_URL = re.compile(r"\w[\w+]*://")


def check_url(connector: str, url: Any) -> None:
    """Raise ComponentError if a URL is none."""
    check_form_of_url(connector, url, "postgresql+psycopg://user@host/database", _URL)


class Database(Remote):
    """One engine of SQLAlchemy, with one connection, made when it is first used."""

    def __init__(self, connector: str, url: str | Secret) -> None:
        text: str = revealed(url)
        super().__init__(connector, without_password(text))
        self.alchemy = load_client("sqlalchemy", connector, "sql")
        try:
            self.engine = self.alchemy.create_engine(text, pool_size=1, pool_pre_ping=True)
        except TypeError:  # SQLite in memory has another pool
            self.engine = self.alchemy.create_engine(text)
        except (ImportError, self.alchemy.exc.ArgumentError) as error:
            raise self.refused(
                error, "the driver of the URL has to be installed where the tasks run"
            ) from error
        self.close_at_last(self.engine.dispose)

    @property
    def dialect(self) -> str:
        """The name of the dialect, such as "postgresql"."""
        return str(self.engine.dialect.name)

    def table(self, name: str) -> Any:
        """Return a table as the database describes it; raise ComponentError if it is not there."""
        schema, _, bare = name.rpartition(".")
        with self.reaching():
            try:
                found = self.alchemy.Table(
                    bare, self.alchemy.MetaData(), schema=schema or None, autoload_with=self.engine
                )
                for column in found.columns:
                    if isinstance(column.type, self.alchemy.types.JSON):
                        column.type.none_as_null = True  # None is NULL, as in other columns
                return found
            except self.alchemy.exc.NoSuchTableError:
                known = self.alchemy.inspect(self.engine).get_table_names(schema=schema or None)
        raise ComponentError(
            f"{self.place} has no table {name!r}",
            hint=did_you_mean(bare, known) or f"it has {', '.join(sorted(known)) or 'none'}",
        )

    def columns(self, table: Any, names: Iterable[str]) -> list[Any]:
        """Return columns of a table by their names; raise ComponentError for one it has not."""
        found = []
        for name in names:
            if name not in table.columns:
                raise ComponentError(
                    f"{self.connector}: table {table.name!r} has no column {name!r}",
                    hint=did_you_mean(name, list(table.columns.keys())),
                )
            found.append(table.columns[name])
        return found

    def in_words(self, error: BaseException) -> Exception | None:
        errors = self.alchemy.exc
        if isinstance(error, errors.DBAPIError) and is_passing(errors, error):
            return self.unavailable(str(error.orig).strip().partition("\n")[0])
        return None

    def close(self) -> None:
        self.engine.dispose()


def is_passing(errors: Any, error: Any) -> bool:
    """Return True if a statement may succeed later: the connection was lost, or a lock held."""
    if error.connection_invalidated or isinstance(error, errors.InterfaceError):
        return True
    return isinstance(error, errors.OperationalError) and "no such" not in str(error.orig)
