"""Columns of numbers about roots, in pages of 256 consecutive sequences of one spout task.

A dictionary leads from a page's key (the root without its low eight bits) to its place in the
columns, so a run of neighbouring roots costs one look-up and everything else is numpy. A page
lives as long as one of its roots is pending or still to come, so that memory follows what is
pending, and a root far away costs one page, not the way to it.

Measured before choosing: `bitwise_xor.at` on places takes 8 ns an update, sorting with `reduceat`
40; a page of 256 loses at most 6.4 kB to a root that outlives its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from topo.tracking.ids import U64

I64 = NDArray[np.int64]

PAGE_BITS = 8
PAGE_SIZE = 1 << PAGE_BITS
_BITS = np.uint64(PAGE_BITS)
_LOW = np.uint64(PAGE_SIZE - 1)

VACANT, PENDING, SETTLED = 0, 1, 2

_LEAST_PAGES = 64
_KEY_AND_DICTIONARY_BYTES = 150
_ROOT_BYTES = 25
_WHOLE_PAGE_FACTOR = 16
_PER_ROOT = ("value", "started", "state", "holder", "holds")
_PER_PAGE = ("keys", "pending", "earliest", "stale")


def page_bytes(roots: U64) -> int:
    """Return the bytes that pages for these roots take if none exists yet."""
    keys = roots >> _BITS
    pages = np.count_nonzero(keys[1:] != keys[:-1]) + 1 if len(keys) else 0
    if pages > _LEAST_PAGES:
        pages = len(np.unique(keys))
    return int(pages) * (PAGE_SIZE * _ROOT_BYTES + _KEY_AND_DICTIONARY_BYTES)


class Pages:
    """The columns, and the place of each page of roots in them."""

    def __init__(self) -> None:
        self._place: dict[int, int] = {}
        self._free: list[int] = []
        self._allocate(_LEAST_PAGES)

    def _allocate(self, pages: int) -> None:
        size = pages * PAGE_SIZE
        self.value: U64 = np.zeros(size, np.uint64)
        self.started = np.zeros(size, np.float64)
        self.state = np.zeros(size, np.uint8)
        self.holder = np.zeros(size, np.uint32)
        self.holds = np.zeros(size, np.int32)
        self.keys: U64 = np.zeros(pages, np.uint64)
        self.pending = np.zeros(pages, np.int64)
        self.earliest = np.full(pages, np.inf)
        self.stale = np.zeros(pages, np.bool_)
        self._free = list(range(pages - 1, -1, -1))

    def __len__(self) -> int:
        return len(self._place)

    @property
    def nbytes(self) -> int:
        own: int = sum(getattr(self, name).nbytes for name in _PER_ROOT)
        return own + len(self.keys) * _KEY_AND_DICTIONARY_BYTES

    def locate(self, roots: U64) -> I64:
        """Return the place of each root in the columns; -1 if its page does not exist."""
        return self._places(roots, lambda key: self._place.get(key, -1))

    def open(self, roots: U64) -> I64:
        """Return the place of each root, and make missing pages."""
        return self._places(roots, self._page)

    def _places(self, roots: U64, page_of: Callable[[int], int]) -> I64:
        if not len(roots):
            return np.empty(0, np.int64)
        keys = roots >> _BITS
        starts = np.concatenate(([0], np.flatnonzero(keys[1:] != keys[:-1]) + 1))
        found = np.fromiter(map(page_of, keys[starts].tolist()), np.int64, len(starts))
        lengths = np.diff(starts, append=len(roots))
        pages = np.repeat(found, lengths)
        places = (pages << PAGE_BITS) | (roots & _LOW).astype(np.int64)
        if found.min() < 0:
            places[pages < 0] = -1
        return places

    def _page(self, key: int) -> int:
        page = self._place.get(key)
        if page is None:
            if not self._free:
                self._grow()
            page = self._free.pop()
            self._place[key] = page
            self.keys[page] = key
        return page

    def place_of(self, root: int) -> int:
        """Return the place of one root; -1 if its page does not exist."""
        page = self._place.get(root >> PAGE_BITS, -1)
        return page if page < 0 else page << PAGE_BITS | root & (PAGE_SIZE - 1)

    def open_one(self, root: int) -> int:
        """Return the place of one root, and make its page if it is missing."""
        return self._page(root >> PAGE_BITS) << PAGE_BITS | root & (PAGE_SIZE - 1)

    def root_of(self, place: int) -> int:
        """Return the root at one place."""
        return self.keys.item(place >> PAGE_BITS) << PAGE_BITS | place & (PAGE_SIZE - 1)

    def root_at(self, places: I64) -> U64:
        """Return the roots at these places."""
        low = (places & (PAGE_SIZE - 1)).astype(np.uint64)
        keys: U64 = self.keys[places >> PAGE_BITS] << _BITS
        return keys | low

    def pages_of(self, places: I64) -> I64:
        """Return the pages of these places, each once."""
        marked = np.zeros(len(self.keys), np.bool_)
        marked[places >> PAGE_BITS] = True
        return np.flatnonzero(marked)

    def pending_zeros(self, places: I64) -> I64:
        """Return the places among these whose pending root is zero, in order, each once.

        If many places of a page are given, the whole page is searched, since that needs no sorting;
        the page cannot hold other pending zeros, because none outlives its batch.
        """
        if not len(places):
            return places
        touched = self.pages_of(places)
        if len(touched) * PAGE_SIZE > _WHOLE_PAGE_FACTOR * len(places):
            places = np.unique(places[(self.value[places] == 0) & (self.state[places] == PENDING)])
            order: I64 = np.argsort(self.root_at(places))
            return places[order]
        touched = touched[np.argsort(self.keys[touched])]
        value = self.value.reshape(-1, PAGE_SIZE)[touched]
        state = self.state.reshape(-1, PAGE_SIZE)[touched]
        found = np.flatnonzero((value == 0) & (state == PENDING))
        rows: I64 = touched[found >> PAGE_BITS]
        return rows << PAGE_BITS | (found & (PAGE_SIZE - 1))

    def used(self) -> I64:
        """Return the pages in use."""
        return np.fromiter(self._place.values(), np.int64, len(self._place))

    def page_of(self, key: int) -> int:
        return self._place.get(key, -1)

    def release(self, pages: list[int]) -> None:
        """Give pages back; the columns shrink when few are left."""
        for page in pages:
            del self._place[int(self.keys[page])]
            span = slice(page << PAGE_BITS, (page + 1) << PAGE_BITS)
            self.value[span] = 0
            self.state[span] = VACANT
            self.holder[span] = 0
            self.holds[span] = 0
            self.pending[page] = 0
            self.earliest[page] = np.inf
            self.stale[page] = False
            self._free.append(page)
        capacity = len(self.keys)
        if capacity > _LEAST_PAGES and 4 * len(self._place) < capacity:
            self._shrink()

    def as_data(self) -> dict[str, bytes]:
        """Return the pages in use, column by column; what follows from them is left out."""
        used = self.used()
        columns = {name: getattr(self, name).reshape(-1, PAGE_SIZE)[used] for name in _PER_ROOT}
        return {
            name: column.tobytes() for name, column in {"keys": self.keys[used], **columns}.items()
        }

    def take_data(self, data: Mapping[str, bytes]) -> None:
        """Take over what `as_data` gave, into columns that are empty."""
        keys = np.frombuffer(data["keys"], np.uint64)
        pages = np.array([self._page(key) for key in keys.tolist()], np.int64)
        if not len(pages):
            return
        for name in data.keys() & set(_PER_ROOT):  # a new column is as empty as it was then
            column = getattr(self, name)
            rows = np.frombuffer(data[name], column.dtype).reshape(-1, PAGE_SIZE)
            column.reshape(-1, PAGE_SIZE)[pages] = rows
        is_pending = self.state.reshape(-1, PAGE_SIZE)[pages] == PENDING
        started = self.started.reshape(-1, PAGE_SIZE)[pages]
        self.pending[pages] = is_pending.sum(axis=1)
        self.earliest[pages] = np.where(is_pending, started, np.inf).min(axis=1)

    def _grow(self) -> None:
        """Double the pages; those in use stay in their places."""
        before, used = self.__dict__.copy(), len(self.keys)
        self._allocate(2 * used)
        for name in _PER_ROOT + _PER_PAGE:
            getattr(self, name)[: len(before[name])] = before[name]
        self._free = self._free[:used]

    def _shrink(self) -> None:
        """Move the pages in use to the front of smaller columns."""
        before, kept = self.__dict__.copy(), list(self._place.items())
        old, count = np.array([page for _, page in kept], np.int64), len(kept)
        self._allocate(max(_LEAST_PAGES, 2 * count))
        for name in _PER_ROOT:
            rows = before[name].reshape(-1, PAGE_SIZE)
            getattr(self, name).reshape(-1, PAGE_SIZE)[:count] = rows[old]
        for name in _PER_PAGE:
            getattr(self, name)[:count] = before[name][old]
        self._place = {key: place for place, (key, _) in enumerate(kept)}
        self._free = self._free[: len(self.keys) - count]
