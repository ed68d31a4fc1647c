"""The tiers of the tests: the selection of a run without options, and the options for the rest.

A run without options takes minutes on two cores: it has whatever needs no Spark, no server and no
killed process, and a selection marked `smoke`, which runs once through everything on a real Spark.
`-m spark`, `-m server` and `-m fault` run the tests with that mark, `--all` runs every test. Tests
of files that the command line names are never left out, whatever they need. A run with `--seconds`
has its tests in the order of `tests/turns.py`.

Property tests have a third of their examples, the same ones in every run, so that a run is green or
red by what was changed. `--all` has all examples, made from a new seed, which the run prints.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.property import scale
from tests.turns import in_turns

SLOW = ("spark", "server", "fault")
"""The marks of what a run without options leaves out."""
SMOKE = "smoke"
_NAMED, _SEED, _LEFT_OUT = "topo_named", "topo_seed", "topo_left_out"


def is_slow(item: pytest.Item) -> bool:
    """Return True if a run without options leaves a test out."""
    return not item.get_closest_marker(SMOKE) and any(map(item.get_closest_marker, SLOW))


class Tiers:
    """A plugin that chooses the tests and the examples of a run, and says what was left out."""

    def __init__(self, config: pytest.Config, last_secs: float = 240.0) -> None:
        controller: dict[str, Any] = getattr(config, "workerinput", {})  # of a worker
        self._config = config
        self._has_all = bool(config.option.all_tiers)
        named = controller[_NAMED] if controller else named_files(config)
        self._named: list[str] = named
        self._seed: int | None = controller.get(_SEED)
        self._left_out: Counter[str] = Counter()
        self._until = time.monotonic() + config.option.seconds
        self._last_secs = last_secs
        self._choose_examples()

    def _choose_examples(self) -> None:
        config = self._config
        length = os.environ.get("TOPO_TEST_EXAMPLES")
        scale.set_factor(float(length) if length else 1.0 if self._has_all else 1 / 3)
        is_fresh = self._has_all or length is not None
        if is_fresh and config.option.hypothesis_seed is None:
            self._seed = self._seed or random.SystemRandom().randrange(1 << 32)
            config.option.hypothesis_seed = str(self._seed)
        settings.register_profile(
            "topo",
            max_examples=scale.scaled(100),
            deadline=None,
            derandomize=not is_fresh,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        )
        settings.load_profile("topo")

    def pytest_report_header(self) -> str | None:
        return self._about_seed()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Have the workers of pytest-xdist choose as this process does."""
        node.workerinput[_NAMED], node.workerinput[_SEED] = self._named, self._seed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self._leave_out(items)
        if self._config.option.seconds < math.inf:
            items[:] = in_turns(items)

    def _leave_out(self, items: list[pytest.Item]) -> None:
        if self._has_all or self._config.option.markexpr:
            return
        left_out = [i for i in items if is_slow(i) and str(i.path) not in self._named]
        if not left_out:
            return
        self._left_out["tests"] = len(left_out)
        for mark in SLOW:
            self._left_out[mark] = sum(
                item.get_closest_marker(mark) is not None for item in left_out
            )
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_LEFT_OUT] = dict(self._left_out)
        self._config.hook.pytest_deselected(items=left_out)
        skipped = set(map(id, left_out))
        items[:] = [item for item in items if id(item) not in skipped]

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # before pytest-timeout reads the mark
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Have no test, with all its tries, take longer than `last_secs` after the time is over."""
        left = self._until + self._last_secs - time.monotonic()
        mark = item.get_closest_marker("timeout")
        own = mark.args[0] if mark and mark.args else float(item.config.getini("timeout") or 0)
        if left < (own or math.inf):
            item.add_marker(pytest.mark.timeout(max(left, 0.1)), append=False)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if time.monotonic() <= self._until:
            return
        over = f"the time of --seconds={self._config.option.seconds} was over"
        if getattr(item, "execution_count", 1) > 1:  # a skip would hide that it has failed
            pytest.fail(f"no other try: {over}", pytrace=False)
        pytest.skip(over)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        output = getattr(node, "workeroutput", None) or {}  # none from a worker that died
        self._left_out = self._left_out or Counter(output.get(_LEFT_OUT, {}))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        seed = self._about_seed()
        if seed is None and not self._left_out:
            return
        terminalreporter.section("tiers")
        if seed is not None:
            terminalreporter.write_line(seed)
        if self._left_out:
            marks = [mark for mark in SLOW if self._left_out[mark]]
            counts = ", ".join(f"{self._left_out[mark]} {mark}" for mark in marks)
            options = ", ".join(f"-m {mark}" for mark in marks)
            terminalreporter.write_line(
                f"not run: {self._left_out['tests']} tests ({counts}; some have several marks)."
                f" {options} or the name of a file runs them, --all runs everything."
            )

    def _about_seed(self) -> str | None:
        if self._seed is None:
            return None
        return f"property tests have new examples; --hypothesis-seed={self._seed} repeats them"


def named_files(config: pytest.Config) -> list[str]:
    """Return the files that the command line names, by themselves or in the names of tests."""
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return []
    directory = config.invocation_params.dir
    paths = (Path(directory, arg.partition("::")[0]).resolve() for arg in config.args)
    return [str(path) for path in paths if path.is_file()]
