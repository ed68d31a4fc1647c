"""Forms of values that follow a schema: `Avro`, `Protobuf`, `JsonSchema`; and `SchemaRegistry`."""

from topo.connectors.schemas.avro import Avro
from topo.connectors.schemas.json_schema import JsonSchema
from topo.connectors.schemas.protobuf import Protobuf
from topo.connectors.schemas.registry import SchemaRegistry

__all__ = ["Avro", "JsonSchema", "Protobuf", "SchemaRegistry"]
