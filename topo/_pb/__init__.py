"""The messages of proto/, made when they are imported, from descriptors that `.ci/generate` writes.

Code that protoc generates for Python runs with its own major release of protobuf and with the next,
and a newer release refuses to import it. A descriptor is data that each release reads, so topo takes
whichever release an environment has. The `.pyi` beside each module is protoc's, for type checkers.
"""

from __future__ import annotations

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.message import Message


def messages_of(descriptor: bytes) -> dict[str, type[Message]]:
    """Return the message classes of a file, by name; `descriptor` is its FileDescriptorProto."""
    file = descriptor_pool.Default().AddSerializedFile(descriptor)
    return {
        name: message_factory.GetMessageClass(message)
        for name, message in file.message_types_by_name.items()
    }
