"""``kubeletx ui``: runs the program of the distribution kubeletx-web, which serves a page about the node."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from kubeletx.api.errors import NotFound

from ...connection.client import not_running
from ...options.go_flags import boolean, command
from ...options.settings import Invocation


def find_web() -> Path | None:
    """Return the program of kubeletx-web in this Python environment; None if it is not installed."""
    program = Path(sys.executable).with_name("kubeletx-web")
    return program if os.access(program, os.X_OK) else None


@command(short_help="Open a page about the node in a browser.")
@boolean("--no-browser", help="Only print the link.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="TCP port on 127.0.0.1; 0: any.")
@click.option(
    "--web-address",
    default=None,
    metavar="ADDR:PORT",
    help="Serve the page here, for users of the cluster, with its authentication and TLS.",
)
@click.pass_obj
def ui(invocation: Invocation, no_browser: bool, port: int, web_address: str | None) -> int:
    """Serve a read-only page about the node on 127.0.0.1, and open it in a browser, until Ctrl-C."""
    program = find_web()
    if program is None:
        raise NotFound("the page is not installed; use: pip install 'kubeletx[web]'")
    if not invocation.socket_path.exists():
        raise not_running(invocation.socket_path)
    argv = [str(program), "--socket", str(invocation.socket_path), "--port", str(port)]
    argv += ["--no-browser"] * no_browser
    argv += ["--web-address", web_address] if web_address is not None else []
    os.execv(argv[0], argv)
