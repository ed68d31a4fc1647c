"""`topo rules check`: the mistakes of a rules file, and how its rules are found."""

from __future__ import annotations

import click

from topo.cli.failures import INVALID, CommandError, usage_error
from topo.cli.output import Output, common_options
from topo.errors import RuleError, TopoError, sentence_of
from topo.rules.files import checked_rules
from topo.rules.rule import Rule
from topo.rules.ruleset import check_rule, index_of

COLUMNS = ["RULE", "BY", "WITHIN", "FIRES", "FOUND BY"]


@click.command()
@click.argument("action", metavar="check", shell_complete=lambda *_: ["check"])
@click.argument("path", metavar="FILE", required=False, type=click.Path())
@click.option(
    "--fields",
    metavar="NAMES",
    help="Check against these fields of events and records: group,src,dst.",
)
@common_options()
@click.pass_obj
def rules(out: Output, action: str, path: str | None, fields: str | None) -> None:
    """Check a rules file: its mistakes, and how rules are found.

    With --fields, the fields that conditions name are checked as well; `ts` and `source` are always
    there, and what rules set.

    \b
    Examples:
      topo rules check rules.toml
      topo rules check rules.toml --fields group,event,src,dst
    """
    if action != "check":
        hint = f"topo rules check {action}"
        raise usage_error(f"{action!r} is not 'check'", at="topo rules", hint=hint)
    if path is None:
        raise usage_error("FILE is missing", at="topo rules", hint="topo rules check FILE")
    good, errors = checked_rules(path)
    if fields is not None:
        names = [name.strip() for name in fields.split(",")]
        added = [name for rule in good for name in rule.set_texts]
        for rule in good:
            try:
                check_rule(rule, names, added)
            except TopoError as problem:
                errors.append(RuleError(problem.message, at=path, hint=problem.hint))
    if out.json:
        out.answer_json(
            {
                "valid": not errors,
                "rules": [{"name": rule.name, **rule.to_dict()} for rule in good],
                "mistakes": [{"at": e.at, "message": e.message, "hint": e.hint} for e in errors],
            }
        )
    else:
        for error in errors:
            out.answer(f"{error.at}: {sentence_of(error)}")
            if error.hint:
                out.answer(f"  {error.hint}")
        if not errors:
            out.table(COLUMNS, [_cells(rule) for rule in good])
    if errors:
        count = f"{len(errors)} mistakes" if len(errors) > 1 else "a mistake"
        raise CommandError(INVALID, f"{path} has {count}", code="rules")


def _cells(rule: Rule) -> list[str]:
    data = rule.to_dict()
    fires = str(data.get("having", "at each event"))
    return [
        rule.name,
        ", ".join(rule.key),
        str(data.get("within", "")),
        fires if "again" not in data else f"{fires}, again {data['again']}",
        index_of([rule]).words(),
    ]
