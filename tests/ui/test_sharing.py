"""Pages that show the same cost a driver what one of them costs."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from tests.ui.conftest import Serve
from tests.ui.worlds import World

POLLED = ("", "?window=10m", "/history", "/errors", "/batches")


def counted(driver: Any) -> Counter[str]:
    """Return how often a driver is asked what, from now on."""
    counts: Counter[str] = Counter()

    def ask(name: str, question: Any, *given: Any, **named: Any) -> Any:
        counts[name] += 1
        return question(*given, **named)

    for name in ("stats", "history", "errors", "batches"):
        setattr(driver, name, partial(ask, name, getattr(driver, name)))
    return counts


def test_many_pages_ask_a_driver_once(world: World, serve: Serve) -> None:
    world.add("words")
    site = serve(shared_secs=600.0)
    counts = counted(world.drivers["words"])
    with site.client("view") as viewer, site.client() as operator, ThreadPoolExecutor(4) as pool:
        for path in POLLED:
            asking = [
                partial(one.get, f"/api/topologies/words{path}") for one in (viewer, operator)
            ]
            answers = list(pool.map(lambda ask: ask(), asking * 10))
            assert {answer.status_code for answer in answers} == {200}
            assert len({answer.content for answer in answers}) == 1
    assert counts == {"stats": 2, "history": 1, "errors": 2, "batches": 1}  # errors mark charts


def test_a_change_is_seen_at_once(world: World, serve: Serve) -> None:
    world.add("words")
    site = serve(shared_secs=600.0)
    with site.client() as client:
        for verb, status in (("deactivate", "INACTIVE"), ("activate", "ACTIVE")):
            client.post(f"/api/topologies/words/{verb}").raise_for_status()
            assert client.get("/api/topologies/words").json()["status"] == status


def test_a_failure_is_nobody_elses_answer(world: World, serve: Serve) -> None:
    site = serve(shared_secs=600.0)
    with site.client() as client:
        assert client.get("/api/topologies/words").status_code == 404
        world.add("words")
        assert client.get("/api/topologies/words").status_code == 200


@pytest.mark.parametrize("path", POLLED)
def test_who_may_not_ask_is_told_nothing_of_it(world: World, serve: Serve, path: str) -> None:
    world.add("words")
    site = serve(shared_secs=600.0)
    with site.client() as client, site.client(None) as stranger:
        assert client.get(f"/api/topologies/words{path}").status_code == 200
        assert stranger.get(f"/api/topologies/words{path}").status_code == 401
