"""Traces of tuple trees for OpenTelemetry, off by default.

A tree is a trace. Its id is the checkpoint and the root; the span of a tuple on its way to a task
has the id of the tuple's edge, and the span of its execution an id derived from that edge. Both
ends know the edge, so a trace adds no byte to what travels. `spans` makes the spans, and
`exporting` hands them to OpenTelemetry's own exporter.
"""
