"""`topo drpc`: a server of calls as a process of its own; `topo drpc call`: calls from a shell."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from topo.cli.completion import all_names
from topo.cli.failures import INTERRUPTED, usage_error
from topo.cli.output import Output, common_options
from topo.cli.runs import Runs
from topo.distribution import require
from topo.errors import ConfigError

_DEFAULT_GRPC, _DEFAULT_HTTP = "127.0.0.1:3772", "127.0.0.1:3774"
TOKEN_NAME = "drpc.token"
"""The file of this user's own token, in the registry."""


@click.group(invoke_without_command=True)
@click.option(
    "--grpc",
    "grpc_bind",
    default=_DEFAULT_GRPC,
    show_default=True,
    metavar="HOST:PORT",
    help="Listen for topologies and clients at this address; port 0 takes any free port.",
)
@click.option(
    "--http",
    "http_bind",
    metavar="HOST:PORT",
    help=f"Answer calls by HTTP as well; Storm's port is 3774: {_DEFAULT_HTTP}.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.001),
    default=60.0,
    show_default=True,
    help="End a call after so many seconds, if its client does not say when.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="Ask for the file's first line; without it for one that only this user can read.",
)
@click.option("--acl", metavar="FILE", help="Who may call and who may serve which function (TOML).")
@click.option("--tls-cert", metavar="FILE", help="Use TLS with this certificate chain (PEM).")
@click.option("--tls-key", metavar="FILE", help="Use this private key of the certificate (PEM).")
@click.option(
    "--metrics", metavar="HOST:PORT", help="Serve figures over HTTP, /metrics for Prometheus."
)
@click.option(
    "--max-waiting",
    type=click.IntRange(min=1),
    default=1_000,
    show_default=True,
    help="Refuse calls of a function for which so many wait.",
)
@common_options()
@click.pass_context
def drpc(
    context: click.Context,
    grpc_bind: str,
    http_bind: str | None,
    timeout: float,
    token_file: str | None,
    acl: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    metrics: str | None,
    max_waiting: int,
) -> int | None:
    """Run a server of calls, or call a function that a topology computes.

    By default a topology that computes functions has a server in its driver. One that
    topology.drpc.addresses names outlives drivers, and serves many topologies. SIGTERM or Ctrl-C
    ends all calls, and the server.

    \b
    Examples:
      topo drpc --grpc 127.0.0.1:3772 --http 127.0.0.1:3774
      topo drpc --grpc 0.0.0.0:3772 --token-file token.txt --tls-cert c.pem --tls-key k.pem
      topo drpc call reach foo.com/blog/1 --name reach
    """
    if context.invoked_subcommand is not None:
        return None
    require("spark", "topo drpc")
    from topo.drpc.access import Access
    from topo.drpc.exposition import DrpcExposition
    from topo.drpc.server import DrpcServer, ServerOptions
    from topo.tracking.security import Tls

    out = context.ensure_object(Output)
    file = token_file or str(_own_token(out))
    options = ServerOptions(
        grpc_bind,
        http_bind,
        Access.read(_token(file), acl),
        has_chosen_token=token_file is not None,
        tls=Tls.read(tls_cert, tls_key) if tls_cert or tls_key else None,
        tls_files=(tls_cert, tls_key) if tls_cert and tls_key else None,
        timeout_secs=timeout,
        most_waiting=max_waiting,
    )
    stopped, signals = threading.Event(), list[int]()

    def stop(number: int, frame: object) -> None:
        signals.append(number)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    server = DrpcServer(options).start()
    exposition = None
    try:
        exposition = DrpcExposition(metrics, lambda: server.figures) if metrics else None
        figures_at = exposition.address if exposition else None
        if out.json:
            out.answer_json(
                {
                    "address": server.address,
                    "http": server.http_address,
                    "metrics": figures_at,
                    "token_file": file,
                    "pid": os.getpid(),
                }
            )
        else:
            http = f", http://{server.http_address}/drpc/" if server.http_address else ""
            figures_text = f"; figures at http://{figures_at}/" if figures_at else ""
            out.answer(f"calls at {server.address}{http}; token in {file}{figures_text}")
        sys.stdout.flush()
        stopped.wait()
        out.say("stopping")
    finally:
        if exposition:
            exposition.stop()
        server.stop()
    return INTERRUPTED if signal.SIGINT in signals else 0


@drpc.command()
@click.argument("arguments", metavar="[FUNCTION [ARGS]...]", nargs=-1)
@click.option("--at", metavar="HOST:PORT", help=f"Call the server there; {_DEFAULT_GRPC} if not.")
@click.option("--name", shell_complete=all_names, help="Call the server of this topology.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0.001),
    default=60.0,
    show_default=True,
    help="Give up after so many seconds.",
)
@click.option("--token-file", metavar="FILE", help="Send the file's first line as the token.")
@click.option("--tls-ca", metavar="FILE", help="Use TLS, and trust this authority (PEM).")
@click.option("--pairs", is_flag=True, help="Take FUNCTION ARGS FUNCTION ARGS ..., as Storm does.")
@common_options()
@click.pass_obj
def call(
    out: Output,
    arguments: tuple[str, ...],
    at: str | None,
    name: str | None,
    timeout: float,
    token_file: str | None,
    tls_ca: str | None,
    pairs: bool,
) -> int:
    """Call a function once for each ARGS, and print each result in a line.

    With --pairs a function stands before each of its ARGS. Without ARGS the function is called
    once, with nothing.

    \b
    Examples:
      topo drpc call reach foo.com/blog/1 --name reach
      topo drpc call exclaim a b c --at m1:3772 --token-file token.txt
    """
    require("spark", "topo drpc call")
    from topo.drpc.client import DrpcClient

    calls = _calls(arguments, pairs)
    address, file = _server_of(out, at, name, token_file)
    with DrpcClient(address, token=_token(file), tls_ca=tls_ca) as client:
        for function, args in calls:
            result = client.call(function, args, timeout)
            if out.json:
                out.answer_json({"function": function, "args": args, "result": result})
            else:
                out.answer(result)
    return 0


def _calls(arguments: Sequence[str], pairs: bool) -> list[tuple[str, str]]:
    if not arguments:
        raise usage_error("no function to call", hint="topo drpc call FUNCTION ARGS")
    if not pairs:
        function, *args = arguments
        return [(function, text) for text in args or [""]]
    if len(arguments) % 2:
        raise usage_error(
            f"{len(arguments)} arguments are no pairs", at="--pairs", hint="FUNCTION ARGS ..."
        )
    return list(zip(arguments[::2], arguments[1::2], strict=True))


def _server_of(
    out: Output, at: str | None, name: str | None, token_file: str | None
) -> tuple[str, str]:
    """Return the address of the server to call, and the file with its token."""
    if at and name:
        raise usage_error("--at and --name exclude each other", hint="--at or --name")
    if name is None:
        return at or _DEFAULT_GRPC, token_file or str(_own_token(out))
    run = Runs(out).find(name, "drpc call")
    state = run.state
    if not state.drpc:
        raise usage_error(
            f"{name} has no server of calls now: it is {state.status}",
            at="--name",
            hint="it has one while it runs, if its topology has a DrpcSpout",
        )
    return state.drpc, token_file or state.drpc_token_file


def _own_token(out: Output) -> Path:
    """Return the file with the token of this user's servers; make it if there is none."""
    from topo.tracking.security import fresh_token

    home = Runs(out).registry.home
    path = home / TOKEN_NAME
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(f"{fresh_token()}\n")
    return path


def _token(name: str) -> str:
    from topo.tracking.security import first_line

    try:
        return first_line(name)
    except ConfigError as error:
        raise usage_error(error.message, at="--token-file", hint=error.hint) from None
