"""`topo quickstart`: a small project to start from, with a test that passes."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from topo.cli.completion import directories
from topo.cli.failures import environment_error, usage_error
from topo.cli.output import Output, common_options
from topo.errors import words_of

FILES = ("wordcount.py", "test_wordcount.py", "topo.toml")


@click.command()
@click.argument("directory", metavar="[DIR]", default=".", shell_complete=directories)
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@common_options()
@click.pass_obj
def quickstart(out: Output, directory: str, force: bool) -> None:
    """Write a small project: a topology, its test, its settings.

    Files go into DIR, or the current directory; none is overwritten without --force.

    \b
    Example:
      topo quickstart words
    """
    target = Path(directory)
    for name in FILES:
        if (target / name).exists() and not force:
            raise usage_error(f"{target / name} exists", hint="--force, or another DIR")
    try:
        target.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            text = files("topo.cli").joinpath("starter", name).read_text(encoding="utf-8")
            (target / name).write_text(text, encoding="utf-8")
    except OSError as error:
        words = words_of(error)
        raise environment_error(f"cannot write to {directory}: {words}", code="os") from None
    if directory != "." and not target.resolve().name.isidentifier():
        out.note(f"{target.name!r} cannot be imported as a package; fine for files")
    if out.json:
        out.answer_json({"dir": directory, "files": list(FILES)})
        return
    enter = "" if directory == "." else f"cd {directory}; "
    shown = "" if directory == "." else f"{directory}/"
    out.answer(f"wrote ./{shown}{{{','.join(FILES)}}}")
    out.answer(f"  {enter}pytest; topo local --engine inline wordcount.py --show count --limit 10")
