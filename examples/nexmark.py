"""Nexmark: queries on an auction house, each a program of streams.

    topo local examples/nexmark.py -- q5
    topo local examples/nexmark.py -- q4 20000

Of 50 events one is a new person, 3 are auctions and 46 are bids. Half of the bids go to a hot
auction; three in four come from a hot bidder, and as many auctions are of a hot seller. An event's
time follows from its number; one in ten is delayed, by less than the lag. Everything about an event
follows from its number as well, so a run gives the same each time. Rows have the fields that the
queries read.

    q1   the bids in euros                        q6   mean price of a seller's last ten auctions
    q2   the bids on some auctions                q7   the highest bids of each ten seconds
    q3   who sells in three states                q8   new persons who sell in their ten seconds
    q4   mean closing price by category           q11  bids of each bidder, by session
    q5   the auctions with the most bids, every two seconds of the last ten
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

from topo import EventTime, Max, Mean, Session, Sliding, Topology, Tumbling
from topo.streams import Process, Stream, StreamBuilder

# -- events ----------------------------------------------------------------------------------------

SEED = 2
START = 1_700_000_000_000
PER_SECOND = 20
MOST_DELAY = 2_000
"""By how many milliseconds an event is delayed at most."""
LONGEST_AUCTION = 20_000

PERSONS, AUCTIONS, BIDS = range(1), range(1, 4), range(4, 50)
"""The places of each kind of event in a round of 50."""
FIRST_ID = 1_000
HOT = 10
"""Of so many ids that follow one another the first is hot while the last of them is new."""
ACTIVE = 20
"""Auctions and persons that are not hot are chosen among so many of the newest."""
CITIES = {"Portland": "OR", "Boise": "ID", "Oakland": "CA", "Phoenix": "AZ", "Seattle": "WA"}
NAMES = ("Ann", "Bob", "Cleo", "Dan", "Eve", "Finn")


def random_of(number: int) -> Random:
    """Return the source of all chance in an event."""
    return Random(SEED << 40 | number)


def time_of(number: int, random: Random) -> int:
    """Return an event's time; those that are delayed come later than others of their time."""
    delay = random.randrange(MOST_DELAY) if random.random() < 0.1 else 0
    return START + 1_000 * number // PER_SECOND - delay


def chosen(newest: int, hot_ratio: int, random: Random) -> int:
    """Return an id: mostly the hot one, else one of the newest."""
    if random.randrange(hot_ratio) > 0:
        return FIRST_ID + newest // HOT * HOT
    return FIRST_ID + random.randint(max(0, newest - ACTIVE), newest)


def person(number: int) -> list[Any]:
    random = random_of(number)
    city = random.choice(list(CITIES))
    name = random.choice(NAMES)
    return [FIRST_ID + number // 50, name, city, CITIES[city], time_of(number, random)]


def auction(number: int) -> list[Any]:
    random = random_of(number)
    ts = time_of(number, random)
    seller = chosen(number // 50, 4, random)
    expires = ts + random.randint(1_000, LONGEST_AUCTION)
    own_id = FIRST_ID + number // 50 * len(AUCTIONS) + number % 50 - AUCTIONS.start
    return [own_id, seller, random.randint(10, 14), expires, ts]


def bid(number: int) -> list[Any]:
    random = random_of(number)
    newest_auction = number // 50 * len(AUCTIONS) + len(AUCTIONS) - 1
    on, bidder = chosen(newest_auction, 2, random), chosen(number // 50, 4, random)
    return [on, bidder, random.randint(100, 5_000), time_of(number, random)]


def events_of(places: range, made: Callable[[int], list[Any]], until: int) -> Iterator[list[Any]]:
    """Yield the events of one kind; of fifty events of all kinds, they have certain places."""
    for first in range(0, until, 50):
        for number in range(first + places.start, min(first + places.stop, until)):
            yield made(number)


class House:
    """The streams of an auction house."""

    def __init__(self, events: int) -> None:
        self.builder = StreamBuilder()
        self.events = events

    def persons(self) -> Stream[Any]:
        return self._stream("persons", ("id", "name", "city", "state", "ts"), PERSONS, person)

    def auctions(self) -> Stream[Any]:
        fields = ("id", "seller", "category", "expires", "ts")
        return self._stream("auctions", fields, AUCTIONS, auction)

    def bids(self) -> Stream[Any]:
        return self._stream("bids", ("auction", "bidder", "price", "ts"), BIDS, bid)

    def _stream(
        self, name: str, fields: tuple[str, ...], places: range, made: Callable[[int], list[Any]]
    ) -> Stream[Any]:
        events = partial(events_of, places, made, self.events)
        time = EventTime("ts", lag=timedelta(milliseconds=MOST_DELAY))
        return self.builder.stream(events, fields=fields, time=time, name=name)


# -- queries ---------------------------------------------------------------------------------------

TEN_SECONDS = timedelta(seconds=10)
TWO_SECONDS = timedelta(seconds=2)
AT_ONCE = timedelta(0)


def q1(house: House) -> Stream[Any]:
    """Return the bids with their prices in euros."""
    return house.bids().map(lambda b: (b.auction, b.bidder, b.price * 0.908, b.ts))


def q2(house: House) -> Stream[Any]:
    """Return the bids on every 123rd auction."""
    return house.bids().filter(lambda b: b.auction % 123 == 0).map(lambda b: (b.auction, b.price))


def q3(house: House) -> Stream[Any]:
    """Return the sellers in three states of auctions in category 10, whichever came first."""
    sellers = house.persons().to_table(key="id")
    sold = house.auctions().filter(lambda a: a.category == 10).to_table(key="id")
    return (
        sold.join(sellers, lambda a, p: (p.name, p.city, p.state), on="seller")
        .filter(lambda key, seller: seller[2] in ("OR", "ID", "CA"))
        .to_stream()
    )


def bids_in_time(house: House) -> Stream[Any]:
    """Return (auction's id, (auction, bid)) for each bid between opening and closing."""
    auctions, bids = house.auctions().key_by("id"), house.bids().key_by("auction")
    longest = timedelta(milliseconds=LONGEST_AUCTION)
    pairs = auctions.join(bids, within=(AT_ONCE, longest))
    return pairs.filter(lambda pair: pair[1][1].ts <= pair[1][0].expires)


def q4(house: House) -> Stream[Any]:
    """Return the mean of the highest bids of each category, again whenever one has changed.

    A higher bid replaces the auction's row, so the mean loses the old one.
    """
    highest = (
        bids_in_time(house)
        .map(lambda pair: (pair[0], (pair[1][0].category, pair[1][1].price)))
        .pairs()
        .max(lambda value: value[1])
        .to_table()
    )
    return (
        highest.group_by(lambda auction, value: value[0])
        .aggregate(Mean(lambda value: value[1]))
        .to_stream()
    )


def most(best: list[tuple[int, int]], counted: tuple[int, int]) -> list[tuple[int, int]]:
    """Return the auctions with the highest count, of those so far and another one."""
    if not best or counted[1] > best[0][1]:
        return [counted]
    return [*best, counted] if counted[1] == best[0][1] else best


def q5(house: House) -> Stream[Any]:
    """Return, every two seconds, the auctions with the most bids in the last ten.

    The counts of windows that end together are in one window of two seconds.
    """
    counts = house.bids().key_by("auction").window(Sliding(TEN_SECONDS, TWO_SECONDS)).count()
    return (
        counts.map(lambda result: (result.key, result.value))
        .window(Tumbling(TWO_SECONDS))
        .fold(list, most)
        .flat_map(lambda result: [(result.end, *hot) for hot in result.value])
    )


class Closing(Process[int, Any, Any]):
    """Tells what an auction was sold for, when no bid in time can come any more."""

    def on_value(self, key: int, value: Any) -> None:
        sold, offer = value
        self.state["seller"] = sold.seller
        self.state["price"] = max(offer.price, self.state.get("price", 0))
        self.set_timer("closed", sold.expires + 1)

    def on_timer(self, key: int, name: str, at: int) -> None:
        self.emit((self.state["seller"], (at, key, self.state["price"])))
        self.state.clear()


class LastTen(Process[int, tuple[int, int, int], Any]):
    """Follows the mean price of a seller's last ten auctions, in the order in which they closed.

    Auctions wait until the watermark has passed: then all that closed before are there.
    """

    def on_value(self, key: int, value: tuple[int, int, int]) -> None:
        self.state.setdefault("waiting", []).append(value)
        self.set_timer(str(value[0]), value[0] + 1)

    def on_timer(self, key: int, name: str, at: int) -> None:
        waiting, last = self.state["waiting"], self.state.get("last", [])
        for closed in sorted(value for value in waiting if value[0] < at):
            last = [*last, closed[2]][-10:]
            self.emit((key, (closed[1], sum(last) / len(last))))
        self.state["waiting"] = [value for value in waiting if value[0] >= at]
        self.state["last"] = last


def q6(house: House) -> Stream[Any]:
    """Return the mean price of each seller's last ten auctions, whenever one has closed."""
    closed = bids_in_time(house).pairs().process(Closing())
    return closed.process(LastTen())


def q7(house: House) -> Stream[Any]:
    """Return the bids with the highest price in their ten seconds."""
    bids = house.bids()
    highest = bids.window(Tumbling(TEN_SECONDS)).aggregate(Max("price"))
    windows = highest.map(lambda result: (result.value, result.window)).pairs()
    return (
        bids.key_by("price")
        .join(windows, within=(AT_ONCE, TEN_SECONDS))
        .filter(lambda pair: pair[1][1].start <= pair[1][0].ts < pair[1][1].end)
        .map(lambda pair: (pair[1][1].end, *pair[1][0]))
    )


def q8(house: House) -> Stream[Any]:
    """Return the persons who are new and sell something within the same ten seconds."""
    persons, auctions = house.persons().key_by("id"), house.auctions().key_by("seller")
    return persons.join(
        auctions, window=Tumbling(TEN_SECONDS), merge=lambda p, sold: (p.name, sold.id)
    )


def q11(house: House) -> Stream[Any]:
    """Return how often each bidder bid in a session: until nothing came for ten seconds."""
    sessions = house.bids().key_by("bidder").window(Session(TEN_SECONDS)).count()
    return sessions.map(lambda result: (result.key, result.start, result.end, result.value))


QUERIES = {query.__name__: query for query in (q1, q2, q3, q4, q5, q6, q7, q8, q11)}


def topology(query: str = "q5", events: str = "5000") -> Topology:
    if query not in QUERIES:
        raise ValueError(f"there is no query {query!r}; there are {', '.join(QUERIES)}")
    house = House(int(events))
    QUERIES[query](house).print(query)
    return house.builder.build()
