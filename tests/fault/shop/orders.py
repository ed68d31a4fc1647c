"""Orders; values of this class travel in tuples."""

from __future__ import annotations

from dataclasses import dataclass

FRUIT = ("apple", "pear", "plum")


@dataclass(frozen=True)
class Order:
    number: int
    fruit: str


def order(number: int) -> Order:
    return Order(number, FRUIT[number % len(FRUIT)])
