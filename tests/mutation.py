"""Mistakes, planted one at a time over all rooms: how many do the tests find?

    python -m tests.mutation                  the tests beside each, of the default tier: minutes
    python -m tests.mutation --tier           and, for what they miss, the default tier: an hour
    python -m tests.mutation --all routing    every test, against the mistakes of one room

Each mistake is planted in a copy of the project. The tests beside it run first, since a mistake
that they find needs no more. A run of tests that takes too long has found its mistake as well. A
mistake whose text is no longer in the code is named, and has to be written anew. This is no part
of CI.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NEAR_SECS, _TIER_SECS = 120.0, 1800.0
"""How long tests may take: a mistake may be an endless loop."""
_DEFAULT = "not spark and not server and not fault"


@dataclass(frozen=True)
class Mutant:
    """A mistake: in a file of topo/ a text, which stands there once, becomes another one."""

    file: str
    before: str
    after: str
    near: str
    """The tests that should find it, as pytest's arguments."""

    @property
    def name(self) -> str:
        return f"{self.file}: {self.before.strip()} -> {self.after.strip()}"


MUTANTS = [
    Mutant(
        "routing/groupers.py",
        "self._next = (self._next + rows.count) % count",
        "self._next = rows.count % count",
        "tests/property/test_grouping_laws.py tests/unit/test_groupings_table.py",
    ),
    Mutant(
        "routing/groupers.py",
        "self._loads[place] += 1",
        "self._loads[place] += 0",
        "tests/property/test_grouping_laws.py tests/conformance/test_groupings.py",
    ),
    Mutant(
        "tracking/verdicts.py",
        "max(number + 1 - self.first, 0)",
        "max(number - self.first, 0)",
        "tests/unit/test_ledger.py tests/property/test_ledger_model.py",
    ),
    Mutant(
        "tracking/epochs.py",
        "if before is not None and before.nonce != execution.nonce:",
        "if False:",
        "tests/unit/test_acker_batches.py tests/property/test_acker_world.py",
    ),
    Mutant(
        "tracking/ledger.py",
        "places = places[late]",
        "places = places[~late]",
        "tests/unit/test_ledger.py tests/property/test_ledger_model.py",
    ),
    Mutant(
        "storage/ownership.py",
        "if before is not None and before != silent and not self._is_free(before):",
        "if False:",
        "tests/unit/test_checkpoint_owner.py",
    ),
    Mutant(
        "storage/recovery.py",
        "if whole == last and not torn:",
        "if whole == last:",
        "tests/unit/test_checkpoint_recovery.py",
    ),
    Mutant(
        "storage/keyed.py",
        "and _digest(data[key]) != digest:",
        "and False:",
        "tests/unit/test_attribute_shapes.py tests/unit/test_state.py",
    ),
    Mutant(
        "runtime/watermarks.py",
        "if known.idle or watermark <= known.watermark:",
        "if watermark <= known.watermark:",
        "tests/conformance/test_window_cases.py tests/unit/test_held_watermarks.py",
    ),
    Mutant(
        "runtime/outbox.py",
        "elif kinds <= _UNCHANGEABLE:",
        "elif True:",
        "tests/unit/test_real_time_work.py tests/unit/test_dealing.py",
    ),
    Mutant(
        "runtime/pending.py",
        "return joined[(joined >= first) & (joined <= end)]",
        "return joined[(joined > first) & (joined <= end)]",
        "tests/property/test_pending_laws.py",
    ),
    Mutant(
        "runtime/slot.py",
        "return self.exhausted and not self.pending",
        "return self.exhausted",
        "tests/unit/test_inline.py tests/unit/test_testing.py tests/conformance/test_end_to_end.py",
    ),
    Mutant(
        "windows/sessions.py",
        "if end > at:  # it has grown since",
        "if end >= at:",
        "tests/conformance/test_window_cases.py tests/property/test_window_laws.py",
    ),
    Mutant(
        "windows/assigners.py",
        "return [(start, start + size) for start in range(first, last + 1, slide)]",
        "return [(start, start + size) for start in range(first, last, slide)]",
        "tests/conformance/test_window_cases.py tests/property/test_window_laws.py",
    ),
    Mutant(
        "windows/triggers.py",
        "return facts.new >= self.n",
        "return facts.new > self.n",
        "tests/conformance/test_window_cases.py tests/unit/test_windows.py",
    ),
    Mutant(
        "joins/interval.py",
        "if first <= at <= last:",
        "if first <= at < last:",
        "tests/conformance/test_join_cases.py tests/property/test_join_laws.py",
    ),
    Mutant(
        "operators/aggregates/bags.py",
        "if count > 1:",
        "if count > 2:",
        "tests/conformance/test_table_cases.py tests/property/test_table_laws.py",
    ),
    Mutant(
        "streams/api/elements.py",
        'node = self._next("key_by", getter(key, "key_by"), keyed=True)',
        'node = self._next("key_by", getter(key, "key_by"), keyed=False)',
        "tests/unit/test_streams.py tests/conformance/test_streams.py",
    ),
    Mutant(
        "connectors/kafka/offsets.py",
        "return found if found > self.committed else None",
        "return found",
        "tests/connectors/test_kafka_books.py tests/connectors/test_kafka_spout.py",
    ),
    Mutant(
        "connectors/retries.py",
        "2 ** min(failures - 1, 1000)",
        "2 ** min(failures, 1000)",
        "tests/connectors/test_kafka_books.py tests/connectors/test_kafka_spout.py",
    ),
    Mutant(
        "connectors/http/server.py",
        "if len(self._connections) >= self._limits.connections:",
        "if len(self._connections) > self._limits.connections:",
        "tests/connectors/test_http.py",
    ),
    Mutant(
        "connectors/files/sink.py",
        "self._place.remove_later(self._task, self.state.get(_LAST, -1))",
        "pass",
        "tests/connectors/test_file_bolt.py",
    ),
    Mutant(
        "connectors/sql/spout.py",
        "query = query.where(keys[0] > floor[0])",
        "query = query.where(keys[0] >= floor[0])",
        "tests/connectors/test_sql.py",
    ),
    Mutant(
        "manage/supervisor.py",
        'not (state.status == "FAILED" and state.may_restart)',
        'not state.status == "FAILED"',
        "tests/unit/test_control_supervisor.py",
    ),
    Mutant(
        "manage/registry.py",
        "if taken and not taken.over:",
        "if False:",
        "tests/unit/test_control_registry.py tests/unit/test_control_submit.py",
    ),
    Mutant(
        "ui/security.py",
        "return role if good and int(ends) > self._clock() else None",
        "return role if good else None",
        "tests/ui/test_security.py",
    ),
    Mutant(
        "config/checks.py",
        "if component and not setting.component:",
        "if False:",
        "tests/unit/test_config.py tests/unit/test_builder.py",
    ),
    Mutant(
        "metrics/series.py",
        "while series and now - series[0][0] > kept:",
        "while False:",
        "tests/unit/test_series.py",
    ),
    Mutant(
        "logs/reader.py",
        'if line["time"] < self.since:',
        'if line["time"] > self.since:',
        "tests/unit/test_control_logs.py",
    ),
    Mutant(
        "cli/target.py",
        "if len(args) > len(parameters):",
        "if False:",
        "tests/unit/test_target.py",
    ),
    Mutant(
        "engine/spark/plan.py",
        'if not said and found["keys"] != wanted["keys"]:',
        "if False:",
        "tests/unit/test_plan.py",
    ),
    Mutant(
        "engine/spark/worker/spool.py",
        'if int(path.name.split("-")[2]) < batch:',
        'if int(path.name.split("-")[2]) <= batch:',
        "tests/unit/test_spark_spool.py tests/unit/test_spark_stages.py",
    ),
    Mutant(
        "engine/spark/realtime/align.py",
        "if marker.sent != self._received[source]:",
        "if False:",
        "tests/property/test_epoch_laws.py",
    ),
    Mutant(
        "engine/spark/driver/restarts.py",
        "self.failures = 0 if has_progress else self.failures + 1",
        "self.failures = 0",
        "tests/unit/test_slot_process_world.py tests/unit/test_spark_run.py",
    ),
    Mutant(
        "topology/validation.py",
        "if depths[name] == MAX_LEVELS + 1:",
        "if depths[name] == MAX_LEVELS + 2:",
        "tests/unit/test_topology.py tests/unit/test_limits.py",
    ),
    Mutant(
        "shipping/pickling.py",
        'return not _is_installed(origin, name.count("."))',
        "return True",
        "tests/unit/test_carried_modules.py tests/unit/test_spark_shipping.py",
    ),
    Mutant(
        "tracing/spans.py",
        "return np.flatnonzero(mix_all(roots) <= self._below)",
        "return np.flatnonzero(mix_all(roots) > self._below)",
        "tests/unit/test_tracing.py",
    ),
]


@contextmanager
def planted(mutant: Mutant) -> Iterator[Path]:
    """Give a copy of the project with the mistake in it."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    with tempfile.TemporaryDirectory(prefix="topo-mutant-") as directory:
        for name in filter(None, listed.stdout.split("\0")):
            if (source := ROOT / name).exists():
                copy = Path(directory, name)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, copy)
        path = Path(directory, "topo", mutant.file)
        path.write_text(path.read_text().replace(mutant.before, mutant.after))
        yield Path(directory)


def is_there(mutant: Mutant) -> bool:
    """Return True if the text of a mistake stands in its file, once."""
    path = ROOT / "topo" / mutant.file
    return path.exists() and path.read_text().count(mutant.before) == 1


def first_failure(directory: Path, secs: float, *words: str) -> str:
    """Run tests until one fails, and return its name; nothing if they all pass."""
    plugins = ["-p", "no:cacheprovider", "-p", "no:schemathesis"]
    command = [sys.executable, "-m", "pytest", "-x", "-q", *plugins, *words]
    environment = {**os.environ, "PYTHONPATH": str(directory)}
    try:
        ended = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=secs,
        )
    except subprocess.TimeoutExpired:
        return f"no end within {secs:g} s"
    if ended.returncode == 0:
        return ""
    lines = ended.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED tests", "ERROR tests"))]
    return failed[0][:160] if failed else (lines or [ended.stderr])[-1][:160]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation")
    parser.add_argument("rooms", nargs="*", help="the beginnings of paths in topo/; all without")
    parser.add_argument("--tier", action="store_true", help="the default tier for what is missed")
    parser.add_argument("--all", action="store_true", help="every test for what is missed")
    options = parser.parse_args()
    mutants = [m for m in MUTANTS if not options.rooms or m.file.startswith(tuple(options.rooms))]
    missed, stale = [], [mutant for mutant in mutants if not is_there(mutant)]
    for mutant in mutants:
        if mutant in stale:
            continue
        begun = time.monotonic()
        with planted(mutant) as directory:
            failure = first_failure(directory, _NEAR_SECS, "-m", _DEFAULT, *mutant.near.split())
            if not failure and (options.tier or options.all):
                words = ["--all"] if options.all else []
                failure = first_failure(directory, _TIER_SECS, "-n", "2", *words)
        if not failure:
            missed.append(mutant)
        verdict = f"found by {failure}" if failure else "MISSED"
        print(f"{mutant.name}\n    {verdict} ({time.monotonic() - begun:.0f} s)", flush=True)
    print(f"{len(mutants) - len(missed) - len(stale)} of {len(mutants)} found")
    for mutant in missed:
        print(f"missed: {mutant.name}")
    for mutant in stale:
        print(f"not in the code any more: {mutant.name}")
    return 1 if missed or stale else 0


if __name__ == "__main__":
    sys.exit(main())
