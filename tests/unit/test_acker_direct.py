"""Calls within the acker's process: they wait for their turn, and no longer than over gRPC."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from threading import Event

from tests.acker_calls import Ackers, emitted, run_batch
from topo.errors import AckerError
from topo.tracking.client import AckerControl, can_restart
from topo.tracking.ids import Updates

LONGEST_SECS = 30.0  # of a test that fails


class Stuck:
    """A journal on a file system that does not answer until it is told to."""

    def __init__(self) -> None:
        self.is_asked, self.answers = Event(), Event()

    def begin(self, shard: int, first_batch: int) -> dict[int, str]:
        return {}

    def forget(self, shard: int, first_batch: int) -> None:
        """Nothing is there."""

    def write(self, shard: int, batch: int, failures: Mapping[int, str]) -> None:
        self.is_asked.set()
        self.answers.wait(LONGEST_SECS)


@contextmanager
def writing_failures(ackers: Ackers) -> Iterator[Stuck]:
    """Have a slot's call write failures for as long as the journal does not answer."""
    journal = ackers.services[0].journal = Stuck()
    client = ackers.register()
    messages = emitted(1, 1, 1)
    failures = Updates(fail_roots=messages.init_roots, fail_reasons=["lost"])
    with ThreadPoolExecutor(1) as slot:
        staged = slot.submit(run_batch, client, 0, messages, failures)
        try:
            assert journal.is_asked.wait(LONGEST_SECS)
            yield journal
        finally:
            journal.answers.set()
        staged.result(LONGEST_SECS)


def test_a_call_that_does_not_get_its_turn_is_an_acker_that_does_not_answer() -> None:
    ackers = Ackers()
    driver = AckerControl(replace(ackers.target, call_secs=0.01, give_up_secs=0.0), ackers)
    with writing_failures(ackers), ThreadPoolExecutor(1) as thread:
        error = thread.submit(driver.status).exception(LONGEST_SECS / 3)
        assert isinstance(error, AckerError)
        assert (error.code, can_restart(error)) == ("acker-unreachable", True)
        assert "has not answered since" in str(error)
        assert "another call has been in work for 0.01 s" in str(error)
        assert "failures to the checkpoint" in str(error)
    assert driver.status().staged != ()


def test_a_call_that_gets_its_turn_in_time_is_answered() -> None:
    ackers = Ackers()
    with writing_failures(ackers) as journal, ThreadPoolExecutor(1) as thread:
        looked = thread.submit(ackers.control.status)
        journal.answers.set()
        assert looked.result(LONGEST_SECS).incarnations != ()
