"""Chooses the slow tests of a run of .ci/run: those near the change, and a third of the others.

    python .ci/touched.py < SLOW_FILES

Reads the names of the test files with slow tests, and prints those to run, the ones that the change
touches first. What changed is told by git: the commits since `origin/main`, or, on `main` itself,
the last ones of a day, twenty at the most; and in both cases what is not committed. The third
is another one after each commit, the same one for the same commit.
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta

ROWS: dict[str, tuple[str, ...]] = {
    "topo/bolts/": (
        "tests/spark/test_windows.py",
        "tests/spark/test_joins.py",
        "tests/spark/test_learning.py",
        "tests/spark/test_patterns.py",
        "tests/spark/test_rules.py",
        "tests/conformance/",
    ),
    "topo/cli/": ("tests/fault/test_whole_way.py", "tests/fault/test_control.py"),
    "topo/connectors/": ("tests/connectors/",),
    "topo/engine/spark/": ("tests/spark/", "tests/fault/", "tests/conformance/"),
    "topo/joins/": ("tests/spark/test_joins.py", "tests/conformance/"),
    "topo/learning/": ("tests/spark/test_learning.py",),
    "topo/manage/": ("tests/fault/", "tests/ui/"),
    "topo/flux/": ("tests/flux/", "tests/multilang/"),
    "topo/multilang/": ("tests/multilang/",),
    "topo/operators/": (
        "tests/spark/test_windows.py",
        "tests/spark/test_joins.py",
        "tests/conformance/",
    ),
    "topo/rules/": ("tests/spark/test_rules.py",),
    "topo/runtime/": ("tests/spark/", "tests/conformance/", "tests/fault/test_slots.py"),
    "topo/serving/": ("tests/ui/", "tests/fault/test_control.py"),
    "topo/storage/": ("tests/spark/", "tests/fault/"),
    "topo/streams/": ("tests/spark/test_joins.py", "tests/conformance/"),
    "topo/tables/": ("tests/spark/test_joins.py", "tests/conformance/"),
    "topo/tracking/": ("tests/fault/", "tests/spark/"),
    "topo/storm_rest/": ("tests/ui/",),
    "topo/ui/": ("tests/ui/",),
    "topo/windows/": ("tests/spark/test_windows.py", "tests/conformance/"),
    "topo/wire/": ("tests/spark/", "tests/fault/test_slots.py"),
    "docs/": ("tests/docs/",),
    "examples/": ("tests/docs/",),
    "tests/servers/": ("tests/connectors/",),
}
"""What changed, by the start of its path, and the tests that need a process, a server or Spark for
it. What begins with none of these and lies in topo/ is tested by `EVERYWHERE`."""
EVERYWHERE = ("tests/conformance/", "tests/spark/")
WITHOUT_BASE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""Git's name of the tree without files."""
DAY = timedelta(days=1)
COMMITS = 20


def touched_by(path: str, slow: Iterable[str]) -> list[str]:
    """Return the slow files that test what is in a file."""
    starts = [start for row, tests in ROWS.items() if path.startswith(row) for start in tests]
    if not starts and path.startswith("topo/"):
        starts = [*EVERYWHERE]
    directory, _, name = path.rpartition("/")
    starts.append(path if name.startswith("test_") else f"{directory}/")
    return [file for file in slow if file.startswith(tuple(starts))]


def choose(changed: Sequence[str], slow: Sequence[str], turn: int) -> tuple[list[str], list[str]]:
    """Return the slow files that the change touches, and every third of the rest."""
    touched = sorted({file for path in changed for file in touched_by(path, slow)})
    rest = sorted(set(slow) - set(touched))
    shift = turn % (len(touched) or 1)  # if there is no time for all of them: not always the same
    return touched[shift:] + touched[:shift], rest[turn % 3 :: 3]


def git(*words: str) -> str:
    """Return what a git command prints, nothing if it fails."""
    ended = subprocess.run(["git", *words], capture_output=True, text=True)
    return ended.stdout.strip() if ended.returncode == 0 else ""


def base_of_change() -> str:
    """Return the commit before the change."""
    upstream = git("merge-base", "HEAD", "origin/main")
    if upstream and upstream != git("rev-parse", "HEAD"):
        return upstream
    times = [line.split() for line in git("log", f"-{COMMITS + 1}", "--format=%H %ct").splitlines()]
    last_day = [hash for hash, time in times if int(time) > int(times[0][1]) - DAY.total_seconds()]
    rest = [hash for hash, _ in times if hash not in last_day]
    return (rest or last_day[COMMITS:] or [WITHOUT_BASE])[0]


def main() -> None:
    slow = [line.strip() for line in sys.stdin if line.strip()]
    base, head = base_of_change(), git("rev-parse", "HEAD")
    changed = git("diff", "--name-only", base).splitlines()
    changed += git("ls-files", "--others", "--exclude-standard").splitlines()
    turn = int(head[:8] or "0", 16)
    touched, third = choose(changed, slow, turn)
    print(
        f"{len(changed)} files changed since {base[:10]}: {len(touched)} of {len(slow)} slow test "
        f"files, and third {turn % 3 + 1} of 3 of the others: {len(third)}",
        file=sys.stderr,
    )
    print(*touched, *third, sep="\n")


if __name__ == "__main__":
    main()
