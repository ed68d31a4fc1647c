"""Storm's REST API over the management API, for scripts that were made for Storm UI.

Nothing of topo knows this room but `topo ui`, which adds its routes to the pages' (and may leave
them out): what Storm calls a thing, and how it writes it, stays in here.
"""
