"""``kubeletx fornaxcore-sim``: runs a simulated core, which is a program of distribution kubeletx-testing."""

from __future__ import annotations

import importlib.util
import os
import sys

import click

from ...options.go_flags import command

_MODULE = "kubeletx_testing.fornaxcore"


@command(short_help="Run a simulated FornaxCore.", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[FLAGS]")
def simulator(arguments: tuple[str, ...]) -> int:
    """Run a simulated FornaxCore with an HTTP API, until Ctrl-C. It is part of distribution kubeletx-testing.

    \b
      --listen HOST:PORT     address of a core; may be repeated (default 127.0.0.1:18001)
      --api HOST:PORT        address of the HTTP API (default 127.0.0.1:18002)
      --create-seconds N     time for a pod to be Running (default 30)
      --open-seconds N       time for a session to be Available (default 10)
      --receive-mib N        largest message from a node (default 4)
      --no-line              nodes connect to gRPC's own socket: faster, but never silent
      --tls-cert, --tls-key  certificate and key of the core (PEM files)
      --tls-client-ca FILE   CA of the nodes' certificates
    """
    if importlib.util.find_spec("kubeletx_testing") is None:
        raise click.UsageError(
            "the simulated FornaxCore is not installed; install distribution kubeletx-testing"
        )
    os.execv(sys.executable, [sys.executable, "-m", _MODULE, *arguments])
