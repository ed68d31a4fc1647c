"""`topo acker`: an acker as a process of its own."""

from __future__ import annotations

import os
import signal
import threading

import click

from topo.cli.failures import INTERRUPTED, usage_error
from topo.cli.output import Output, common_options
from topo.distribution import require
from topo.errors import ConfigError


@click.command()
@click.option(
    "--bind",
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Listen at this address; port 0 takes any free port.",
)
@click.option(
    "--token-file",
    metavar="FILE",
    help="Ask for the file's first line when a topology registers; needed beyond loop-back.",
)
@click.option("--tls-cert", metavar="FILE", help="Use TLS with this certificate chain (PEM).")
@click.option("--tls-key", metavar="FILE", help="Use this private key of the certificate (PEM).")
@click.option(
    "--tls-ca", metavar="FILE", help="Ask clients for certificates of this authority (mutual TLS)."
)
@click.option(
    "--metrics", metavar="HOST:PORT", help="Serve figures over HTTP, /metrics for Prometheus."
)
@click.option(
    "--max-bytes",
    type=click.IntRange(1 << 20),
    default=2 << 30,
    show_default=True,
    help="Let one topology hold so many bytes.",
)
@click.option(
    "--grace",
    type=float,
    default=5.0,
    show_default=True,
    help="Give running calls so many seconds at the end.",
)
@common_options()
@click.pass_obj
def acker(
    out: Output,
    bind: str,
    token_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_ca: str | None,
    metrics: str | None,
    max_bytes: int,
    grace: float,
) -> int:
    """Run an acker, which tracks the messages of topologies that have its address.

    By default a topology's ackers live in its driver. Those that topology.acker.addresses names
    outlive it: when a driver dies, they still know its pending messages. SIGTERM or Ctrl-C stops
    this acker after it has answered the running calls; its pending messages are lost.

    \b
    Examples:
      topo acker --bind 127.0.0.1:7071
      topo acker --bind 0.0.0.0:7071 --token-file token.txt --metrics 127.0.0.1:9100
    """
    require("spark", "topo acker")
    from topo.tracking.exposition import Exposition
    from topo.tracking.security import Tls
    from topo.tracking.server import AckerServer
    from topo.tracking.service import Limits

    if tls_ca and not tls_cert:
        raise usage_error(
            "--tls-ca asks for certificates of clients, which takes TLS",
            at="--tls-ca",
            hint="give --tls-cert and --tls-key as well",
        )
    tls = Tls.read(tls_cert, tls_key, tls_ca) if tls_cert or tls_key else None
    server = AckerServer(
        bind,
        tls=tls,
        admission=_admission(token_file) if token_file else None,
        limits=Limits(topology_bytes=max_bytes),
    )
    stopped, signals = threading.Event(), list[int]()

    def stop(number: int, frame: object) -> None:
        signals.append(number)
        stopped.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    server.start()
    exposition = None
    try:
        exposition = Exposition(metrics, server.service.figures) if metrics else None
        _announce(out, server.address, exposition.address if exposition else None, tls is not None)
        stopped.wait()
        out.say("stopping")
    finally:
        if exposition:
            exposition.stop()
        server.stop(grace)
    return INTERRUPTED if signal.SIGINT in signals else 0


def _announce(out: Output, address: str, metrics: str | None, tls: bool) -> None:
    if out.json:
        out.answer_json({"address": address, "metrics": metrics, "tls": tls, "pid": os.getpid()})
        return
    figures = f"; figures at http://{metrics}/" if metrics else ""
    out.answer(f"acker at {address}, {'TLS' if tls else 'no TLS'}{figures}")


def _admission(name: str) -> str:
    from topo.tracking.security import first_line

    try:
        return first_line(name)
    except ConfigError as error:
        raise usage_error(error.message, at="--token-file", hint=error.hint) from None
