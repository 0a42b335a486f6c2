"""Command ``python -m kubeletx_testing.fornaxcore``: a cluster of simulated cores with an HTTP API.

It prints one line for each core, ``core NAME HOST:PORT``, and ``api http://HOST:PORT``, and runs until SIGTERM or SIGINT.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

from aiohttp import web

from .api import Api
from .cluster import Cluster
from .core import FornaxCore
from .settings import MIB, CoreSettings, Tls


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line; `kubeletx fornaxcore-sim --help` describes it."""
    parser = argparse.ArgumentParser(prog="kubeletx fornaxcore-sim", allow_abbrev=False)
    parser.add_argument("--listen", action="append", metavar="HOST:PORT")
    parser.add_argument("--api", default="127.0.0.1:18002", metavar="HOST:PORT")
    parser.add_argument("--create-seconds", type=float, default=30)
    parser.add_argument("--open-seconds", type=float, default=10)
    parser.add_argument("--receive-mib", type=int, default=4)
    parser.add_argument("--no-line", action="store_true")
    for name in ("--tls-cert", "--tls-key", "--tls-client-ca"):
        parser.add_argument(name, type=Path)
    return parser.parse_args(arguments)


async def run(options: argparse.Namespace) -> None:
    """Run the cores and the API until SIGTERM or SIGINT."""
    tls = None
    if options.tls_cert is not None:
        tls = Tls(cert_file=options.tls_cert, key_file=options.tls_key, client_ca_file=options.tls_client_ca)
    cluster = Cluster()
    async with contextlib.AsyncExitStack() as stack:
        for number, listen in enumerate(options.listen or ["127.0.0.1:18001"], 1):
            settings = CoreSettings(
                name=f"core-{number}",
                listen=listen,
                create_seconds=options.create_seconds,
                open_seconds=options.open_seconds,
                receive_bytes=options.receive_mib * MIB,
                tls=tls,
                has_line=not options.no_line,
                keep_messages=False,
            )
            core = await stack.enter_async_context(FornaxCore(settings, cluster=cluster))
            _show(f"core {settings.name} {core.address}")
        runner = web.AppRunner(Api(cluster).application(), access_log=None)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        host, _, port = options.api.rpartition(":")
        await web.TCPSite(runner, host, int(port)).start()
        _show(f"api http://{host}:{runner.addresses[0][1]}")
        end = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, end.set)
        await end.wait()


def _show(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(run(parse()))
