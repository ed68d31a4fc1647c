"""Collections of MongoDB: `MongoChanges` reads their changes, `MongoBolt` writes documents."""

from topo.connectors.mongodb.changes import Change, MongoChanges
from topo.connectors.mongodb.sink import MongoBolt

__all__ = ["Change", "MongoBolt", "MongoChanges"]
