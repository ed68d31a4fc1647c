"""Ten programs of streams, as they are written: windows, joins, tables, timers.

    topo local examples/ten_programs.py trending_hashtags -t 20

Each function is a program over events of the shop, with its own data; `topology` runs one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from topo import (
    AfterCount,
    AtWatermark,
    Count,
    EventTime,
    Mean,
    Session,
    Sliding,
    Spout,
    Sum,
    Topology,
    Tumbling,
)
from topo.streams import Process, Stream, StreamBuilder

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
Streams = dict[str, Stream[Any]]


def second(count: int) -> timedelta:
    return timedelta(seconds=count)


# -- windows ---------------------------------------------------------------------------------------


def hopping_average(readings: Stream[Any]) -> Streams:
    """The mean of the last twenty seconds, every ten; what is late goes aside."""
    means = (
        readings.key_by("sensor")
        .window(Sliding(second(20), second(10)))
        .aggregate(mean=Mean("value"), n=Count())
    )
    return {
        "means": means.map(lambda r: (r.start, r.mean, r.n)),
        "late": means.late().map(lambda pair: pair[1].value),
    }


def early_sessions(visits: Stream[Any]) -> Streams:
    """How many pages a visit has: after every second page, and at its end."""
    sessions = visits.key_by("user").window(
        Session(second(30)), trigger=AtWatermark(early=AfterCount(2))
    )
    return {"sessions": sessions.count().map(lambda r: (r.key, r.timing, r.value))}


def top_pages(clicks: Stream[Any]) -> Streams:
    """The two pages with the most clicks of each ten seconds."""
    counts = clicks.key_by("page").window(Tumbling(second(10))).count()
    top = counts.key_by("start").window(Tumbling(second(10))).top(2, by="value")
    return {"top": top.map(lambda r: (r.key, [(page.key, n) for page, n in r.value]))}


def trending_hashtags(posts: Stream[Any]) -> Streams:
    """Tags that are written at least twice as often as in the minute before."""
    counts = posts.key_by("tag").window(Tumbling(second(60))).count().key_by("key")
    growth = counts.left_join(counts, within=(second(60), second(-60)))
    before = growth.map_values(lambda both: (both[0], both[1].value if both[1] else 0))
    trending = before.filter(lambda pair: pair[1][0].value >= max(2, 2 * pair[1][1]))
    return {"trending": trending.map(lambda pair: (pair[0], pair[1][0].start, pair[1][0].value))}


# -- joins and tables ------------------------------------------------------------------------------


def unpaid_orders(orders: Stream[Any], payments: Stream[Any]) -> Streams:
    """Orders with their payments, and those that have none within a minute."""
    both = orders.key_by("id").outer_join(payments.key_by("order"), within=(second(0), second(60)))
    routes = both.branch(
        paid=lambda pair: None not in pair[1],
        unpaid=lambda pair: pair[1][1] is None,
        default="unasked",
    )
    return {name: route.keys() for name, route in routes.items()}


def in_euros(orders: Stream[Any], rates: Stream[Any]) -> Streams:
    """Orders at the rate that was valid when they were made."""
    table = rates.to_table("currency", versioned=timedelta(hours=1))
    priced = orders.key_by("currency").left_join(
        table, lambda order, rate: (order.id, order.amount * rate.euros if rate else None)
    )
    return {"euros": priced.values()}


def spent_by_country(customers: Stream[Any], orders: Stream[Any]) -> Streams:
    """What the customers of each country have spent; customers move, and go."""
    people = customers.to_table("id", deleted=lambda customer: customer.country is None)
    spent = orders.key_by("customer").aggregate(Sum("amount")).to_table()
    totals = people.join(spent, lambda person, total: (person.country, total))
    countries = totals.group_by(lambda key, value: value[0]).aggregate(Sum(lambda value: value[1]))
    return {"countries": countries.to_stream()}


def orders_with_names(orders: Stream[Any], customers: Stream[Any]) -> Streams:
    """The table of orders with the names of their customers, whichever of both changes."""
    people = customers.to_table("id")
    named = orders.to_table("id").join(
        people, lambda order, person: (order.item, person.name), on="customer"
    )
    return {"named": named.to_stream()}


# -- state and timers ------------------------------------------------------------------------------


class Silent(Process[str, Any, tuple[str, int]]):
    """Tells of a key that has been silent for ten minutes, and how often it came before."""

    def on_value(self, key: str, value: Any) -> None:
        self.state["count"] = self.state.get("count", 0) + 1
        self.set_timer("silent", self.ts + 10 * MINUTE)

    def on_timer(self, key: str, name: str, at: Any) -> None:
        self.emit((key, self.state.pop("count")))


def silences(events: Stream[Any]) -> Streams:
    return {"silent": events.key_by("user").process(Silent())}


def without_duplicates(messages: Stream[Any]) -> Streams:
    """Each message once within an hour."""
    return {"unique": messages.dedupe("id", within=timedelta(hours=1)).map(lambda m: m.text)}


# -- their data ------------------------------------------------------------------------------------

DATA: dict[str, dict[str, tuple[tuple[str, ...], list[tuple[Any, ...]]]]] = {
    "hopping_average": {
        "readings": (("sensor", "value", "ts"), [
            ("s", 2.0, 1 * SECOND), ("s", 4.0, 12 * SECOND), ("s", 6.0, 25 * SECOND),
            ("s", 9.0, 2 * SECOND), ("s", 8.0, 41 * SECOND),
        ]),
    },
    "early_sessions": {
        "visits": (("user", "page", "ts"), [
            ("ann", "/", 0), ("ann", "/a", 5 * SECOND), ("bob", "/", 6 * SECOND),
            ("ann", "/b", 20 * SECOND), ("zoe", "/", 90 * SECOND),
        ]),
    },
    "top_pages": {
        "clicks": (("page", "ts"), [
            ("home", 1 * SECOND), ("help", 2 * SECOND), ("home", 3 * SECOND), ("news", 4 * SECOND),
            ("help", 5 * SECOND), ("home", 6 * SECOND), ("news", 12 * SECOND),
            ("home", 25 * SECOND),
        ]),
    },
    "trending_hashtags": {
        "posts": (("tag", "ts"), [
            ("#rain", 1 * SECOND), ("#goal", 2 * SECOND), ("#rain", 61 * SECOND),
            ("#rain", 62 * SECOND), ("#rain", 63 * SECOND), ("#goal", 64 * SECOND),
            ("#rain", 190 * SECOND), ("#goal", 310 * SECOND),
        ]),
    },
    "unpaid_orders": {
        "orders": (("id", "ts"), [(1, 0), (2, 10 * SECOND), (3, 200 * SECOND)]),
        "payments": (("order", "ts"), [
            (1, 30 * SECOND), (9, 40 * SECOND), (3, 230 * SECOND), (7, 400 * SECOND),
        ]),
    },
    "in_euros": {
        "orders": (("id", "currency", "amount", "ts"), [
            (1, "usd", 10, 5 * SECOND), (2, "usd", 10, 20 * SECOND), (3, "gbp", 10, 21 * SECOND),
            (4, "usd", 1, 60 * SECOND),
        ]),
        "rates": (("currency", "euros", "ts"), [
            ("usd", 0.5, 0), ("usd", 0.75, 15 * SECOND), ("gbp", 2.0, 90 * SECOND),
        ]),
    },
    "spent_by_country": {
        "customers": (("id", "country"), [
            ("ann", "fr"), ("bob", "de"), ("ann", "de"), ("bob", None),
        ]),
        "orders": (("customer", "amount"), [("ann", 5), ("bob", 7), ("ann", 1)]),
    },
    "orders_with_names": {
        "orders": (("id", "customer", "item"), [
            (1, "a", "pen"), (2, "a", "ink"), (3, "b", "book"), (1, "b", "pen"),
        ]),
        "customers": (("id", "name"), [("a", "Ann"), ("b", "Bob"), ("a", "Anna")]),
    },
    "silences": {
        "events": (("user", "ts"), [
            ("ann", 0), ("bob", 1 * MINUTE), ("ann", 4 * MINUTE), ("bob", 12 * MINUTE),
            ("zoe", 30 * MINUTE),
        ]),
    },
    "without_duplicates": {
        "messages": (("id", "text", "ts"), [
            (1, "one", 0), (1, "one again", 5 * SECOND), (2, "two", 6 * SECOND),
            (1, "one anew", 2 * HOUR),
        ]),
    },
}  # fmt: skip

PROGRAMS: dict[str, Callable[..., Streams]] = {
    program.__name__: program
    for program in (
        hopping_average, early_sessions, top_pages, unpaid_orders, in_euros, spent_by_country,
        orders_with_names, silences, without_duplicates, trending_hashtags,
    )
}  # fmt: skip


def streams(s: StreamBuilder, program: str, sources: Mapping[str, Spout] | None = None) -> Streams:
    """Return the results of a program, by name; `sources` stand for its data."""
    inputs: Streams = {}
    for name, (fields, rows) in DATA[program].items():
        time = EventTime("ts") if "ts" in fields else None
        if sources is None:
            inputs[name] = s.stream(rows, fields=fields, time=time, name=name)
        else:
            inputs[name] = s.stream(sources[name], time=time, name=name)
    return PROGRAMS[program](**inputs)


def topology(program: str = "trending_hashtags") -> Topology:
    if program not in PROGRAMS:
        raise ValueError(f"there is no program {program!r}; there are {', '.join(PROGRAMS)}")
    s = StreamBuilder()
    for name, results in streams(s, program).items():
        results.print(name)
    return s.build()
