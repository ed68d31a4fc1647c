"""Linear Road: tolls that follow the traffic on an expressway.

    topo local examples/linear_road.py

Every vehicle reports twice a minute where it is and how fast. When it comes into another segment
(and is not about to leave) it is told the segment's toll: `2 * (cars - 50) ** 2` if more than 50
cars were there in the minute before and the mean speed of the five minutes before was below 40 mph;
nothing near an accident. Mean speeds are a window of windows, accidents a process and a window, and
both meet side by side. The tolls are a table with versions: a vehicle gets the one that held at its
own time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple, TypeAlias

from topo import EventTime, Sliding, Topology, Tumbling
from topo.streams import KeyedStream, Process, Stream, StreamBuilder

MINUTE = timedelta(minutes=1)
FIVE_MINUTES = timedelta(minutes=5)

FORWARD, BACKWARD = 0, 1
EXIT_LANE = 4
SEGMENT_FEET = 5_280
LAST_SEGMENT = 99
STOPPED_REPORTS = 4
"""A vehicle has stopped when so many reports in a row are of one place."""
SEGMENTS_BEFORE = 5
"""An accident counts in so many segments: its own, and those from which vehicles come to it."""

Segment: TypeAlias = tuple[int, int, int]
"""An expressway, a direction and a number."""

# -- traffic ---------------------------------------------------------------------------------------


class Report(NamedTuple):
    """A vehicle's place, in feet, and speed, in miles an hour, at a second."""

    time: int
    vid: int
    speed: int
    xway: int
    lane: int
    dir: int
    seg: int
    pos: int


class Vehicles(NamedTuple):
    """Vehicles that drive alike."""

    number: int
    direction: int
    start: int
    """Where the first of them begins, in feet."""
    speeds: range
    stop: int = -1
    """The place where they stop for some minutes: an accident. -1: nowhere."""


TRAFFIC = (
    Vehicles(64, FORWARD, 10 * SEGMENT_FEET, range(18, 30)),
    Vehicles(8, FORWARD, 8 * SEGMENT_FEET, range(55, 80)),
    Vehicles(62, BACKWARD, 21 * SEGMENT_FEET, range(18, 30)),
    Vehicles(2, BACKWARD, 18 * SEGMENT_FEET - 99, range(30, 31), stop=17 * SEGMENT_FEET + 2_000),
    Vehicles(1, FORWARD, 11 * SEGMENT_FEET, range(30, 31), stop=12 * SEGMENT_FEET + 99),
)
SECONDS = 600


def traffic(seed: int = 0) -> list[Report]:
    """Return what all vehicles report, by time."""
    random = Random(seed)
    reports: list[Report] = []
    vid = 0
    for vehicles in TRAFFIC:
        for _ in range(vehicles.number):
            vid += 1
            reports += trip(vid, vehicles, random)
    return sorted(reports)


def trip(vid: int, vehicles: Vehicles, random: Random) -> Iterator[Report]:
    """Yield the reports of one vehicle; the last one of some is from the exit lane."""
    ahead = 1 if vehicles.direction == FORWARD else -1
    pos = vehicles.start + ahead * random.randrange(SEGMENT_FEET // 2)
    leaves = SECONDS // random.choice((1, 1, 2))
    stands = 0
    for time in range(random.randrange(30), leaves, 30):
        speed = random.choice(vehicles.speeds)
        if vehicles.stop >= 0 and ahead * (pos - vehicles.stop) >= 0 and stands < 9:
            pos, speed, stands = vehicles.stop, 0, stands + 1
        lane = 1 + vid % 3 if vehicles.stop < 0 else 1
        if leaves < SECONDS and time + 30 >= leaves:
            lane = EXIT_LANE
        yield Report(time, vid, speed, 0, lane, vehicles.direction, pos // SEGMENT_FEET, pos)
        pos += ahead * speed * 30 * SEGMENT_FEET // 3_600


# -- statistics ------------------------------------------------------------------------------------


class Minute(NamedTuple):
    """The traffic of a segment in the minute that ends at a second."""

    end: int
    cars: int
    speed: float
    """The mean, over the cars, of each one's mean speed."""


class Toll(NamedTuple):
    """The price of a segment in the minute that follows, and the mean speed that it comes of."""

    speed: float
    toll: int


def segment_of(report: Any) -> Segment:
    return report.xway, report.dir, report.seg


def add_speed(cars: dict[int, tuple[int, int]], report: Any) -> dict[int, tuple[int, int]]:
    """Add a report to the sum and the number of each car's speeds."""
    total, number = cars.get(report.vid, (0, 0))
    cars[report.vid] = (total + report.speed, number + 1)
    return cars


def minute_of(result: Any) -> tuple[Segment, Minute]:
    means = [total / number for total, number in result.value.values()]
    return result.key, Minute(result.end, len(means), sum(means) / len(means))


def statistics(reports: Stream[Any]) -> KeyedStream[Any, Any]:
    """Return (segment, (end, minutes)): the minutes with traffic of the five before each end."""
    minutes = reports.key_by(segment_of).window(Tumbling(MINUTE)).fold(dict, add_speed)
    fives = minutes.map(minute_of).pairs().window(Sliding(FIVE_MINUTES, MINUTE)).collect()
    return fives.map(lambda five: (five.key, (five.end, five.value))).pairs()


# -- accidents -------------------------------------------------------------------------------------


class Stopped(Process[int, Any, Any]):
    """Tells of each report that is the fourth or a later one of a vehicle at one place."""

    def on_value(self, key: int, value: Any) -> None:
        place = (value.xway, value.lane, value.dir, value.pos, value.seg)
        again = self.state.get("place") == place
        self.state["times"] = self.state["times"] + 1 if again else 1
        self.state["place"] = place
        if self.state["times"] >= STOPPED_REPORTS:
            self.emit((place, key))


def segments_before(accident: Any) -> list[tuple[Segment, int]]:
    """Return the segments without toll, each with the end of the accident's minute."""
    xway, _, direction, _, seg = accident.key
    back = -1 if direction == FORWARD else 1
    near = (seg + back * n for n in range(SEGMENTS_BEFORE))
    return [((xway, direction, n), accident.end) for n in near if 0 <= n <= LAST_SEGMENT]


def accidents(reports: Stream[Any]) -> KeyedStream[Any, Any]:
    """Return (segment, end) for what is near two stopped cars at one place in a minute."""
    stopped = reports.key_by("vid").process(Stopped()).window(Tumbling(MINUTE)).distinct()
    return stopped.filter(lambda result: result.value >= 2).flat_map(segments_before).pairs()


# -- tolls -----------------------------------------------------------------------------------------


def toll(found: tuple[list[tuple[int, list[Minute]]], list[int]]) -> Toll | None:
    """Return the toll of a segment, from its statistics and accidents of the minute before."""
    statistics, accidents = found
    if not statistics:
        return None  # an accident in sight of an empty road
    ((end, minutes),) = statistics
    speed = sum(minute.speed for minute in sorted(minutes)) / len(minutes)
    cars = sum(minute.cars for minute in minutes if minute.end == end)
    free = accidents or speed >= 40 or cars <= 50
    return Toll(speed, 0 if free else 2 * (cars - 50) ** 2)


class Crossings(Process[int, Any, Any]):
    """Finds the reports of vehicles that have come into another segment and stay on the road."""

    def on_value(self, key: int, value: Any) -> None:
        segment = segment_of(value)
        if segment != self.state.get("segment") and value.lane != EXIT_LANE:
            self.emit((segment, (key, value.time)))
        self.state["segment"] = segment


def notice(crossing: tuple[int, int], toll: Toll | None) -> tuple[int, int, float | None, int]:
    """Return what a vehicle is told: its id, the time, the mean speed and the toll."""
    return (*crossing, *(toll or (None, 0)))


def topology() -> Topology:
    s = StreamBuilder()
    reports = s.stream(
        traffic,  # the function: reports are made where the spout runs
        fields=Report._fields,
        time=EventTime("time", unit="s"),
        name="reports",
    )
    tolls = (
        statistics(reports)
        .cogroup(accidents(reports), window=Tumbling(MINUTE))
        .map_values(toll)
        .filter(lambda result: result[1] is not None)
        .to_table(versioned=MINUTE)
    )
    crossings = reports.key_by("vid").process(Crossings())
    crossings.left_join(tolls, notice).print("toll")
    return s.build()
