"""Web pages over the management API: `topo ui`.

`server` binds and serves what `app` puts together: the API of `api`, Storm's REST API of `storm`,
events of `events`, the metrics, and the pages in `static/`. `security` decides who may do what.
The server keeps nothing: it may be stopped, started and killed at any time.
"""
