"""User code on its way to other processes: pickling, stand-ins, sources, archives."""
