"""Anchors as they are given to an emit, and the errors of what is none or is settled already."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from topo.errors import AnchorError, TupleSettledError, shown
from topo.tuples import BASIC, COPIED, Tuple


def no_anchor(anchor: Any) -> AnchorError:
    return AnchorError(
        f"an anchor must be an input tuple; got {shown(anchor)}",
        hint="anchors=tup, or an iterable of the tuples execute was given",
    )


def each_anchor(anchors: Any) -> Iterable[Any]:
    if isinstance(anchors, str | bytes) or not isinstance(anchors, Iterable):
        return (anchors,)
    return anchors


def raise_no_tuple(value: object, call: str) -> NoReturn:
    raise AnchorError(
        f"{call} takes an input tuple; got {shown(value)}",
        hint=f"{call} the tuple that execute was given",
    )


def refuse(tup: Tuple, what: str) -> NoReturn:
    if tup._topo_link == BASIC:
        raise AnchorError(
            f"{tup!r} cannot be {what}: it is the input of a basic bolt",
            hint="a basic bolt's input is anchored to and acked for it; use Bolt to do it by hand",
        )
    if tup._topo_link == COPIED:
        raise AnchorError(
            f"{tup!r} cannot be {what}: it is a copy, made by pickling the tuple",
            hint="settle the tuple that execute was given; send its values elsewhere",
        )
    raise TupleSettledError(
        f"{tup!r} cannot be {what}: it is acked or failed already",
        hint="ack or fail each input once, after the last emit anchored to it",
    )
