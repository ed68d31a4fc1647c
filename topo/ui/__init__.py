"""Web pages over the management API: `topo ui`.

`server` binds and serves what `app` puts together: the API of `api`, events of `events`, the
metrics, the pages in `static/`, and routes that others bring. `security` decides who may do what.
The server keeps nothing: it may be stopped, started and killed at any time.
"""
