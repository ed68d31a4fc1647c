"""`topo ui`: see and steer topologies in a browser."""

from __future__ import annotations

import html
import logging
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from topo.cli.output import Output, common_options
from topo.cli.runs import Runs
from topo.distribution import require


@click.group(invoke_without_command=True)
@click.option(
    "--bind",
    default="127.0.0.1:8321",
    show_default=True,
    metavar="HOST:PORT",
    help="Serve at this address; port 0 takes any free port.",
)
@click.option("--read-only", is_flag=True, help="Refuse every change.")
@click.option(
    "--allow-submit",
    is_flag=True,
    help="Let holders of the operate token submit topologies, which run code here.",
)
@click.option("--open", "opening", is_flag=True, help="Open the pages in a browser.")
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME[:PORT]",
    help="Answer requests for this host name as well.",
)
@click.option("--tls-cert", metavar="FILE", help="Serve by HTTPS with this certificate (PEM).")
@click.option("--tls-key", metavar="FILE", help="Use this private key of the certificate (PEM).")
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="Trust a proxy that does TLS and names the user in X-Forwarded-User.",
)
@common_options()
@click.pass_context
def ui(
    context: click.Context,
    bind: str,
    read_only: bool,
    allow_submit: bool,
    opening: bool,
    hosts: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    behind_proxy: bool,
) -> None:
    """Show and steer the topologies in a browser, and by REST.

    Prints a link that logs a browser in. The server keeps nothing: stop and start it at will.
    `/metrics` is for Prometheus, /api/openapi.json describes the API.

    \b
    Examples:
      topo ui --open
      topo ui --bind 0.0.0.0:8321 --tls-cert cert.pem --tls-key key.pem --host topo.example.com
    """
    if context.invoked_subcommand is not None:
        return
    require("ui", "topo ui")
    from topo.storm_rest.routes import routes as storms_routes
    from topo.ui.security import OPERATE, VIEW
    from topo.ui.server import Options, Server

    out = context.ensure_object(Output)
    runs = Runs(out)
    logging.basicConfig(
        level=logging.INFO if not out.quiet else logging.ERROR,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    options = Options(
        bind=bind,
        hosts=hosts,
        read_only=read_only,
        allow_submit=allow_submit,
        tls_certificate=tls_cert,
        tls_key=tls_key,
        behind_proxy=behind_proxy,
        environment=runs.env or "",
    )
    server = Server(runs.registry, options, [storms_routes])
    link = server.link(VIEW if read_only else OPERATE)
    if out.json:
        out.answer_json({"url": server.url, "link": link})
    else:
        out.answer(f"topo ui at {server.url}")
        out.answer(f"  log in: {link}")
    sys.stdout.flush()
    with _opened(link) if opening else nullcontext():
        server.run()


@contextmanager
def _opened(link: str) -> Iterator[None]:
    """Open the browser on a private file that leads to the link, until the context ends.

    The link has a token in it, and every user of the machine sees the command line of a browser.
    """
    with TemporaryDirectory(prefix="topo-ui-") as directory:  # which nobody else may enter
        page = Path(directory) / "topo.html"
        page.touch(0o600)
        page.write_text(
            f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(link)}">\n'
        )
        webbrowser.open(page.as_uri())
        yield


@ui.command()
@click.option(
    "--role",
    type=click.Choice(["view", "operate"]),
    default="operate",
    show_default=True,
    help="Choose what the token's holder may do.",
)
@click.option("--renew", is_flag=True, help="Make new tokens; the old ones end, with all sessions.")
@common_options()
@click.pass_obj
def token(out: Output, role: str, renew: bool) -> None:
    """Print the token of a role, for the login form and for scripts.

    A script sends it as `Authorization: Bearer TOKEN`.

    \b
    Example:
      topo ui token --role view
    """
    from topo.ui.security import Tokens

    tokens = Tokens(Runs(out).registry.home)
    if renew:
        tokens.renew()
    found = tokens.of(role)
    out.answer_json({"role": role, "token": found}) if out.json else out.answer(found)
