"""Files as a source and as a sink: `FileSpout` and `FileBolt`."""

from topo.connectors.files.sink import FileBolt
from topo.connectors.files.spout import FileSpout

__all__ = ["FileBolt", "FileSpout"]
