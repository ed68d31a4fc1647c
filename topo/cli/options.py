"""The parameters of every command that builds a topology: TARGET, `-- ARGS`, name, settings.

The last of these layers that sets a key wins: topo.toml, its environment, the code, `--config`,
`-c`, then the flags that stand for a setting.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click

from topo.cli.completion import files
from topo.cli.failures import usage_error
from topo.cli.output import Output
from topo.cli.target import Target, load_target
from topo.config import JSON, Config, Effective, Layer, check_layers, effective, merged
from topo.config.project import Project, load_conf_file, load_project
from topo.topology.model import Topology
from topo.topology.submission import NAME_HINT, is_name, no_name

F = TypeVar("F", bound=Callable[..., Any])

_ARGS = "topo.args"


class TargetCommand(click.Command):
    """A command whose arguments after `--` belong to the user's code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if "--" in args:
            split = args.index("--")
            args, ctx.meta[_ARGS] = args[:split], tuple(args[split + 1 :])
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            if "unexpected extra argument" in error.message:
                raise usage_error(
                    "unexpected arguments after TARGET",
                    at=ctx.command_path,
                    hint=f"arguments for your own code: {ctx.command_path} TARGET -- ARGS",
                ) from None
            raise

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGS]"]


def slots_of(
    context: click.Context | None, option: click.Parameter | None, text: str | None
) -> int | dict[str, int] | None:
    """Return a number of slots, or the limits that were given as MIN..MAX."""
    if text is None:
        return None
    least, dots, most = text.partition("..")
    try:
        return {"min": int(least), "max": int(most)} if dots else int(least)
    except ValueError:
        words = f"{text!r} is no number of slots, and no MIN..MAX"
        raise click.BadParameter(words, context, option) from None


def _slots_in_words(workers: int | Mapping[str, int] | None) -> str:
    return "{min}..{max}".format(**workers) if isinstance(workers, Mapping) else str(workers)


@dataclass(frozen=True)
class ConfOptions:
    """The flags that stand for settings."""

    config: str | None
    pairs: Sequence[str]
    workers: int | Mapping[str, int] | None
    ackers: int | None
    debug: bool
    filters: tuple[str, ...] = ()

    def layers(self) -> list[Layer]:
        layers = [load_conf_file(self.config)] if self.config else []
        layers += [Layer(f"-c {pair}", parse_pair(pair)) for pair in self.pairs]
        flags: dict[str, JSON] = {}
        if self.workers is not None:
            flags[Config.workers.key] = (
                dict(self.workers) if isinstance(self.workers, Mapping) else self.workers
            )
        if self.ackers is not None:
            flags[Config.acker_executors.key] = self.ackers
        if self.debug:
            flags[Config.debug.key] = True
        names = {
            Config.workers.key: f"--workers {_slots_in_words(self.workers)}",
            Config.acker_executors.key: f"-a {self.ackers}",
            Config.debug.key: "-d",
        }
        layers += [Layer(names[key], {key: value}) for key, value in flags.items()]
        return layers


NO_OPTIONS = ConfOptions(None, (), None, None, False)


@dataclass(frozen=True)
class Prepared:
    """A topology with its settings and options."""

    topology: Topology
    target: Target
    name: str
    project: Project
    layers: tuple[Layer, ...]
    warnings: tuple[str, ...]

    @property
    def conf(self) -> Config:
        """The settings of all layers, without the defaults."""
        return Config(merged(*self.layers))

    @property
    def effective(self) -> dict[str, Effective]:
        return effective(*self.layers)


def prepare(
    out: Output,
    spec: str,
    conf: ConfOptions,
    name: str | None = None,
    *,
    command: str,
) -> Prepared:
    """Load the target, merge the settings, check both, and print warnings."""
    project = load_project(out.env)
    given = conf.layers()
    check_layers(given)  # what was typed is wrong before any code is run
    target = load_target(spec, arguments_of_target(), command=command, filters=conf.filters)
    layers = (*project.layers, target.conf, *given)
    warnings = [*target.topology.warnings, *check_layers(layers, target.topology.components)]
    for warning in warnings:
        out.warn(warning)
    chosen = merged(*layers).get(Config.name.key) or target.default_name
    chosen = chosen if name is None else name
    if not is_name(str(chosen)):
        at = "topology.name" if name is None else "-n"
        raise usage_error(no_name(str(chosen)), at=at, hint=NAME_HINT)
    return Prepared(target.topology, target, str(chosen), project, layers, tuple(warnings))


def files_named(text: str | None, option: str) -> tuple[str, ...]:
    """Return the absolute paths of the files of a `F,...` option, which must exist."""
    files = [part.strip() for part in (text or "").split(",") if part.strip()]
    for file in files:
        if "://" not in file and not Path(file.partition("#")[0]).exists():
            raise click.UsageError(f"{option}: no file {file!r}")
    return tuple(file if "://" in file else str(Path(file).resolve()) for file in files)


def arguments_of_target() -> tuple[str, ...]:
    """Return what stands behind `--` on this command line."""
    context = click.get_current_context(silent=True)
    args: tuple[str, ...] = context.meta.get(_ARGS, ()) if context else ()
    return args


def parse_pair(pair: str) -> Mapping[str, JSON]:
    key, equals, text = pair.partition("=")
    if not equals or not key:
        raise usage_error(f"-c takes KEY=VALUE; got {pair!r}", at="-c")
    try:
        return {key: json.loads(text, parse_constant=_no_constant)}
    except ValueError:
        return {key: text}


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


def target_argument(function: F) -> F:
    return click.argument("target", metavar="TARGET", shell_complete=files)(function)


def name_option(function: F) -> F:
    """Add `-n/--name`, passed as `name: str | None`, which `prepare` takes."""
    return click.option(
        "-n",
        "--name",
        metavar="NAME",
        help="Give it this name; default: topology.name, or the file's name.",
    )(function)


def checkpoint_option(by_default: str) -> Callable[[F], F]:
    """Add `--checkpoint`; its help ends with where state is without it."""
    return click.option(
        "--checkpoint",
        metavar="DIR",
        help=f"Keep state in DIR, and resume from it. {by_default}",
    )


def cluster_options(function: F) -> F:
    """Add `--master`, and what is sent there: `--py-files` and `--archives`."""
    master = click.option(
        "--master",
        metavar="URL",
        help="Run it there: local[*], spark://HOST:PORT, yarn or k8s://HOST.",
    )
    py_files = click.option(
        "--py-files", metavar="F,...", help="Send these Python files and archives to the workers."
    )
    archives = click.option(
        "--archives", metavar="F,...", help="Unpack these archives beside the workers."
    )
    return master(py_files(archives(function)))


def conf_options(function: F) -> F:
    """Add `-c`, `--config`, `--workers`, `-a`, `-d`, passed as `conf: ConfOptions`."""

    def collect(kwargs: dict[str, Any]) -> ConfOptions:
        return ConfOptions(
            config=kwargs.pop("config"),
            pairs=kwargs.pop("pairs"),
            workers=kwargs.pop("workers"),
            ackers=kwargs.pop("ackers"),
            debug=kwargs.pop("debug"),
            filters=kwargs.pop("filters"),
        )

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return function(*args, conf=collect(kwargs), **kwargs)

    wrapped.__doc__ = function.__doc__
    wrapped.__name__ = function.__name__
    wrapped.__dict__.update(function.__dict__)
    options = [
        click.option(
            "-c",
            "pairs",
            metavar="KEY=VALUE",
            multiple=True,
            help="Set KEY, or COMPONENT/KEY for one component. VALUE is JSON, else a string.",
        ),
        click.option(
            "--config",
            metavar="FILE",
            shell_complete=files,
            help="Read settings from a .toml or .json file; -c lies over them.",
        ),
        click.option(
            "--filter",
            "filters",
            metavar="FILE",
            multiple=True,
            shell_complete=files,
            help="Fill the placeholders of a TARGET in YAML from a .properties file.",
        ),
        click.option(
            "--workers", callback=slots_of, metavar="N|MIN..MAX", help=_meaning("workers")
        ),
        click.option("-a", "--ackers", type=int, metavar="N", help=_meaning("acker_executors")),
        click.option("-d", "--debug", is_flag=True, help=_meaning("debug")),
    ]
    decorated: Any = wrapped
    for option in reversed(options):
        decorated = option(decorated)
    result: F = decorated
    return result


def _meaning(attribute: str) -> str:
    setting = getattr(Config, attribute)
    return f"{setting.meaning} ({setting.key})"
