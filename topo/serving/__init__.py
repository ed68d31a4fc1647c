"""Serving HTTP: the one way in which topo's processes answer requests.

`server` runs an application on sockets of `listening`, with the limits of `connections`;
`requests` reads what comes, and `figures` is a server of pages for Prometheus. What is answered,
and to whom, is decided by the rooms that bring the application: the driver's control, the pages of
`topo ui`, calls of DRPC.
"""
