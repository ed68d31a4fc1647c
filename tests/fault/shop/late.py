"""Imported by a task only when it runs."""

from __future__ import annotations


def taxed(price: int) -> int:
    return price + 1
