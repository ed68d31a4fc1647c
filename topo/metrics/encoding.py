"""The text format of figures, as whoever asks for them accepts it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector


def encoded(figures: Collector, accept: str) -> tuple[bytes, str]:
    """Return figures in a format that an Accept header names, and its content type.

    Prometheus' library raises if a version in the header is not of numbers; a stranger who sends
    one gets the format of those who ask for none.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(figures)
    try:
        encode, kind = choose_encoder(accept)
        return encode(registry), kind
    except (TypeError, ValueError):
        encode, kind = choose_encoder("")
        return encode(registry), kind
