"""Two drivers and one log of epochs: what one has committed stays, and only one commits.

The former driver stood still while another host took its checkpoint, and comes back before it has
looked at the owner's record. No lock reaches both, as between two hosts; it may come back at any
point between two system calls of its commit, of its beat or of its end.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.scale import examples
from topo.engine.spark.realtime import store as store_module
from topo.engine.spark.realtime.epochs import Committed, EpochRecord
from topo.engine.spark.realtime.records import read_values
from topo.engine.spark.realtime.store import EpochStore, LogFailed
from topo.errors import CheckpointError
from topo.storage.ownership import LocalOwnerFile, Ownership
from topo.tracking.ids import Updates
from topo.tracking.plan import TrackingPlan

PLAN = TrackingPlan(1, 1, (1,), {"spout": (1, 1)}, None)


class Driver:
    """A driver on a host of its own, which claims the checkpoint and reads its log."""

    def __init__(self, place: Path, host: str, *, compact_bytes: int = 1 << 30) -> None:
        self.host = host
        self.meanwhile: Callable[[], None] = lambda: None
        """It happens between the write of an epoch and the look at the owner's record."""
        owned = Ownership("x", "words", "words-1", directory=place, sleep=lambda secs: None)
        owned._record = replace(owned._record, host=host, machine=f"boot-of-{host} 1")
        self.on_its_way: Callable[[], None] = lambda: None
        """It happens between a look at the owner's record and the write of it."""
        write = owned._write

        def written() -> None:
            on_its_way, self.on_its_way = self.on_its_way, lambda: None
            on_its_way()
            write()

        owned._write = written  # type: ignore[method-assign]
        owned.claim()
        owned._unlock()  # no lock reaches another host
        owned._closing.set()  # it beats when a test says so
        owned._beats.join()
        self.owned = owned
        self.store = EpochStore(
            place / "epochs", compact_bytes=compact_bytes, confirm=self._confirm
        )
        self.committed = self.store.recover(Committed(PLAN))

    def _confirm(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        self.owned.confirm()

    def commit(self) -> int:
        """Commit an epoch that names its host; return its number, if that could be."""
        epoch = self.committed.epoch + 1
        saved = {(1, str(epoch)): self.host.encode()}
        record = EpochRecord(epoch, 100.0, saved, (), Updates(), {1: 0})
        self.store.append(record, self.committed)
        self.committed.apply(record)
        if self.store._compaction is not None:
            self.store._compaction.join()
        return epoch

    def leave(self) -> None:
        """End in order, which gives the checkpoint free."""
        self.owned.close()
        self.store.close()

    def close(self) -> None:
        self.store.close()
        self.owned._closing.set()
        self.owned._beats.join()


@contextmanager
def two(place: Path) -> Iterator[tuple[Driver, Callable[[], Driver]]]:
    """A driver that has committed two epochs, and what has another host take its checkpoint."""
    drivers = [Driver(place, "a")]

    def take() -> Driver:
        drivers.append(Driver(place, f"b{len(drivers)}"))
        return drivers[-1]

    drivers[0].commit()
    drivers[0].commit()
    try:
        yield drivers[0], take
    finally:
        for driver in drivers:
            driver.close()


def hosts_of(place: Path) -> list[str]:
    """Return which host each epoch is of, as the next start finds them."""
    with closing(EpochStore(place / "epochs")) as store:
        store.recover(Committed(PLAN))
        saved = read_values(store.directory, store.places([1])).get(1, {})
        return [saved[str(epoch)].decode() for epoch in range(1, len(saved) + 1)]


def test_a_driver_that_comes_back_commits_no_epoch(tmp_path: Path) -> None:
    with two(tmp_path) as (former, take):
        now = take()
        with pytest.raises(CheckpointError, match=r"was taken over by .* on b1"):
            former.commit()
        assert now.commit() == 3
        with pytest.raises(CheckpointError, match="was taken over"):
            former.commit()
        assert now.commit() == 4
    assert hosts_of(tmp_path) == ["a", "a", "b1", "b1"]
    assert hosts_of(tmp_path) == ["a", "a", "b1", "b1"], "nor does a start after the next"


def test_without_the_look_it_would(tmp_path: Path) -> None:
    with two(tmp_path) as (former, take):
        take()
        former.store._confirm = lambda: None
        assert former.commit() == 3
    with pytest.raises(CheckpointError, match="1 epoch is missing whose messages were acked"):
        hosts_of(tmp_path)


def test_an_epoch_that_was_written_before_the_other_one_read_counts_for_it(tmp_path: Path) -> None:
    with two(tmp_path) as (former, take):
        others: list[Driver] = []
        former.meanwhile = lambda: others.append(take())
        with pytest.raises(CheckpointError, match="was taken over"):
            former.commit()
        assert others[0].commit() == 4
    assert hosts_of(tmp_path) == ["a", "a", "a", "b1"]


def test_what_it_has_torn_behind_its_end_is_nobodys(tmp_path: Path) -> None:
    with two(tmp_path) as (former, take):
        now = take()
        assert former.store._file is not None
        former.store._file.write(b"half a record")
        now.commit()
    assert hosts_of(tmp_path) == ["a", "a", "b1"]


def test_a_segment_that_it_has_opened_without_an_epoch_is_replaced(tmp_path: Path) -> None:
    former = Driver(tmp_path, "a")
    now = Driver(tmp_path, "b")
    with pytest.raises(CheckpointError, match="was taken over"):
        former.commit()
    assert now.commit() == 1
    for driver in (former, now):
        driver.close()
    assert hosts_of(tmp_path) == ["b"]


def test_it_removes_no_file_of_the_other_ones(tmp_path: Path) -> None:
    with two(tmp_path) as (former, take):
        former.store._compact_bytes = 1
        former.commit()  # it begins a compaction
        assert former.store._compaction is not None
        former.store._compaction.join()
        now = take()
        files = sorted((tmp_path / "epochs").iterdir())
        with pytest.raises(CheckpointError, match="was taken over"):
            former.commit()
        former.store.close()
        assert sorted((tmp_path / "epochs").iterdir()) == files
        assert now.commit() == 4
    assert hosts_of(tmp_path) == ["a", "a", "a", "b1"]


def test_a_snapshot_that_it_finishes_meanwhile_ends_no_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with two(tmp_path) as (_, take):
        renamed, glob = tmp_path / "epochs" / f"{2:020d}.tmp", Path.glob
        monkeypatch.setattr(
            Path, "glob", lambda at, names: [renamed] if names == "*.tmp" else glob(at, names)
        )
        assert take().commit() == 3
    assert hosts_of(tmp_path) == ["a", "a", "b1"]


def test_a_disk_that_fails_it_costs_the_other_one_no_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The epoch is whole, and its sync fails: what the other one has read is not cut off."""
    with two(tmp_path) as (former, take):
        others: list[Driver] = []

        def fail(file: int) -> None:
            monkeypatch.undo()
            others.append(take())
            raise OSError(5, "Input/output error")

        former.store._sync = True
        monkeypatch.setattr(store_module, "sync_data", fail)
        with pytest.raises(CheckpointError, match="was taken over"):
            former.commit()
        assert others[0].commit() == 4
    assert hosts_of(tmp_path) == ["a", "a", "a", "b1"]


def test_a_beat_that_was_on_its_way_gives_nothing_back(tmp_path: Path) -> None:
    with two(tmp_path) as (former, take):
        others: list[Driver] = []
        former.on_its_way = lambda: others.append(take())
        former.owned.beat()
        with pytest.raises(CheckpointError, match="was taken over by another driver"):
            former.commit()
        assert others[0].commit() == 3
    assert hosts_of(tmp_path) == ["a", "a", "b1"]


@pytest.mark.parametrize("is_ending", [False, True])
def test_what_a_former_driver_says_last_frees_no_checkpoint(
    tmp_path: Path, is_ending: bool
) -> None:
    with two(tmp_path) as (former, take):
        others: list[Driver] = []
        former.on_its_way = lambda: others.append(take())
        (former.leave if is_ending else former.owned.beat)()
        third = Ownership(
            "x", "tweets", "t-1", directory=tmp_path, sleep=lambda secs: others[0].owned.beat()
        )
        with pytest.raises(CheckpointError, match=r"of 'words' .* on b1"):
            third.claim()
        assert others[0].commit() == 3


class Failing(LocalOwnerFile):
    """A record whose reads fail, so many times."""

    def __init__(self, directory: Path, times: int) -> None:
        super().__init__(directory)
        self.times = times

    def read(self) -> str | None:
        self.times -= 1
        if self.times >= 0:
            raise OSError(errno.ESTALE, "Stale file handle")
        return super().read()


def test_a_read_of_the_record_that_fails_for_a_moment_ends_no_run(tmp_path: Path) -> None:
    with closing(Driver(tmp_path, "a")) as driver:
        driver.owned._file = Failing(tmp_path, 2)
        assert [driver.commit(), driver.commit()] == [1, 2]
    assert hosts_of(tmp_path) == ["a", "a"]


def test_one_that_goes_on_failing_is_named(tmp_path: Path) -> None:
    with closing(Driver(tmp_path, "a")) as driver:
        driver.owned._file = Failing(tmp_path, 1000)
        for _ in range(2):
            with pytest.raises(LogFailed, match="the owner's record cannot be read: stale file"):
                driver.commit()
    assert hosts_of(tmp_path) == ["a"], "nobody was told of it, and the next start commits it"


def test_an_owner_that_has_left_is_not_waited_for(tmp_path: Path) -> None:
    Driver(tmp_path, "a").leave()
    waited: list[float] = []
    third = Ownership("x", "tweets", "t-1", directory=tmp_path, sleep=waited.append)
    third.claim().close()
    assert not waited
    assert not list(tmp_path.glob(".topo-*"))


@examples(40)
@given(st.data(), st.sampled_from([1, 300, 1 << 30]))
def test_whatever_is_committed_stays_and_is_of_one_driver(
    data: st.DataObject, compact_bytes: int
) -> None:
    """Commits, beats and ends of all drivers, and takeovers between and within them."""
    with tempfile.TemporaryDirectory() as name:
        told: dict[int, str] = {}
        with ExitStack() as stack:
            act_at_random(data, Path(name), stack, compact_bytes, told)
        hosts = hosts_of(Path(name))
        assert {epoch: hosts[epoch - 1] for epoch in told} == told


def act_at_random(
    data: st.DataObject, place: Path, stack: ExitStack, compact_bytes: int, told: dict[int, str]
) -> None:
    drivers: list[Driver] = []

    def take() -> None:
        host = f"d{len(drivers)}"
        drivers.append(
            stack.enter_context(closing(Driver(place, host, compact_bytes=compact_bytes)))
        )

    take()
    for _ in range(data.draw(st.integers(1, 12))):
        driver = data.draw(st.sampled_from(drivers))
        if data.draw(st.booleans()):
            driver.meanwhile = driver.on_its_way = take
        match data.draw(st.sampled_from(["commit", "commit", "commit", "take", "beat", "end"])):
            case "take":
                take()
                continue
            case "beat":
                driver.owned.beat()
                continue
            case "end":
                driver.owned.close()
                continue
        with suppress(CheckpointError):
            epoch = driver.commit()
            assert epoch not in told, f"both {told[epoch]} and {driver.host} were told"
            told[epoch] = driver.host
            assert driver is drivers[-1]
