"""Export of spans by OpenTelemetry's own SDK, in a thread of its own.

The SDK's processor has a bounded queue: if the collector is away or slow, spans are dropped and the
SDK logs it; a batch never waits. The packages are the extra `otel`, imported at the first span's
exporter, once a process and collector.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from topo.distribution import install_command
from topo.errors import MissingExtra
from topo.tracing.spans import EMIT, EXECUTE, MESSAGE, Span, trace_id

_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_open: list[Exporter] = []


class Exporter:
    """The way of one topology's spans to a collector."""

    def __init__(self, endpoint: str | None, topology: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._topology = topology
        self._resource = Resource.create({"service.name": topology})
        self._processor: Any = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint))

    def export(self, checkpoint_id: str, spans: Iterable[Span]) -> None:
        """Queue spans for the collector."""
        for span in spans:
            self._processor.on_end(self._readable(checkpoint_id, span))

    def flush(self) -> None:
        """Wait until what is queued has been sent, for some seconds at most."""
        self._processor.force_flush(_FLUSH_MILLIS)

    def _readable(self, checkpoint_id: str, span: Span) -> Any:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

        trace = trace_id(checkpoint_id, span.root)

        def context(span_id: int) -> SpanContext:
            return SpanContext(trace, span_id, is_remote=False, trace_flags=TraceFlags(1))

        kinds = {MESSAGE: SpanKind.INTERNAL, EMIT: SpanKind.PRODUCER, EXECUTE: SpanKind.CONSUMER}
        attributes: dict[str, str | int] = {
            "topo.topology": self._topology,
            "topo.component": span.component,
            "topo.task": span.task,
        }
        if span.stream:
            attributes["topo.stream"] = span.stream
        status = Status(StatusCode.UNSET)
        if span.kind == MESSAGE:
            failed = span.error is not None
            status = Status(StatusCode.ERROR, span.error) if failed else Status(StatusCode.OK)
        return ReadableSpan(
            name=f"{span.component} {span.kind}",
            context=context(span.id),
            parent=None if span.parent is None else context(span.parent),
            resource=self._resource,
            attributes=attributes,
            links=[Link(context(link)) for link in span.links],
            kind=kinds[span.kind],
            status=status,
            start_time=span.start,
            end_time=span.end,
        )


_FLUSH_MILLIS = 3000


@cache
def exporter_to(endpoint: str | None, topology: str) -> Exporter:
    """Return this process's exporter to a collector."""
    exporter = Exporter(endpoint, topology)
    _open.append(exporter)
    return exporter


def flush_exporters() -> None:
    """Send what is queued, before the process ends."""
    for exporter in _open:
        exporter.flush()


def check_tracing(conf: Mapping[str, Any]) -> None:
    """Raise MissingExtra if traces are wanted and OpenTelemetry is not installed."""
    if not conf["topology.trace.rate"]:
        return
    hint = f"{install_command('otel')}, or set topology.trace.rate to 0"
    check_installed("topology.trace.rate asks for traces", hint)


def check_installed(what: str, hint: str = "") -> None:
    """Raise MissingExtra if OpenTelemetry, for which something asks, is not installed."""
    for package in _PACKAGES:
        try:
            found = importlib.util.find_spec(package)
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise MissingExtra(
                f"{what}, and OpenTelemetry is not installed",
                hint=hint or install_command("otel"),
            )
