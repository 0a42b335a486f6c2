"""The program ``kubeletx-web``: serves the page to the administrator of this node; ``kubeletx ui`` starts it."""

from __future__ import annotations

import asyncio
import logging
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import click
import structlog

from kubeletx.api import InvalidConfig, KubeletxError, SystemClock

from .access import LocalAccess
from .agent import Agent
from .http import serving
from .server import Pages, utc_now
from .templates import prepare_templates

ADDRESS = "127.0.0.1"


@click.command()
@click.option(
    "--socket",
    "socket_path",
    type=click.Path(path_type=Path),
    required=True,
    metavar="PATH",
    help="Admin socket.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="TCP port on 127.0.0.1; 0: any free one."
)
@click.option(
    "--web-address",
    default=None,
    metavar="ADDR:PORT",
    help="Serve the page here, to users with the right to get nodes/proxy, with the kubelet API's TLS.",
)
@click.option(
    "--report",
    "report_directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=None,
    metavar="DIR",
    help="Write the pages as files into this directory, and end.",
)
@click.option("--browser/--no-browser", default=True, help="Open the page in a browser, if there is one.")
def main(
    socket_path: Path, port: int, web_address: str | None, report_directory: Path | None, browser: bool
) -> None:
    """Serve a read-only page about the node of the agent behind the admin socket."""
    if report_directory is not None:
        asyncio.run(report(socket_path, report_directory))
        return
    with suppress(KeyboardInterrupt):
        if web_address is None:
            asyncio.run(serve(socket_path, port, browser=browser))
        else:
            asyncio.run(serve_cluster(socket_path, *split_address(web_address)))


def split_address(text: str) -> tuple[str, int]:
    """Return address and port of ``ADDR:PORT``; an IPv6 address may have brackets. Raises click.BadParameter."""
    address, colon, port = text.rpartition(":")
    if not (address and colon and port.isdecimal() and int(port) < 65536):
        raise click.BadParameter(
            f"'{text}' is not ADDR:PORT; write an address of this node, such as 192.0.2.7:10260"
        )
    return address.removeprefix("[").removesuffix("]"), int(port)


async def report(socket_path: Path, directory: Path) -> None:
    """Write the pages as files."""
    from .report import write_report

    try:
        written, missing = await write_report(Agent(socket_path), directory, utc_now)
    except KubeletxError as error:
        raise click.ClickException(str(error)) from error
    except OSError as error:
        raise click.ClickException(
            f"cannot write {error.filename or directory}: {error.strerror}; choose another directory"
        ) from error
    click.echo(f"Wrote {written} files; open {directory / 'index.html'}")
    if missing:
        click.echo(f"{missing} files are missing: the agent did not answer for them.")


async def serve(socket_path: Path, port: int, *, browser: bool) -> None:
    """Serve the page on 127.0.0.1 until SIGINT or SIGTERM."""
    access = LocalAccess(SystemClock())
    prepare_templates()
    async with _listening(Pages(Agent(socket_path), access), "port", ADDRESS, port) as number:
        link = f"http://{ADDRESS}:{number}/?token={access.token}"
        click.echo(
            f"The page of this node is at\n\n    {link}\n\n"
            "The link works once, within 5 minutes. Ctrl-C ends the page."
        )
        sys.stdout.flush()
        if browser:
            import webbrowser

            await asyncio.to_thread(webbrowser.open, link)


async def serve_cluster(socket_path: Path, address: str, port: int) -> None:
    """Serve the page to users of the kubelet's API until SIGINT or SIGTERM."""
    from .cluster import FILES, ClusterAccess, ClusterTls

    agent = Agent(socket_path)
    try:
        tls = ClusterTls(await agent.get(FILES, dict))
    except KubeletxError as error:
        raise click.ClickException(str(error)) from error
    pages = Pages(agent, ClusterAccess(agent, SystemClock()))
    async with _listening(pages, "web-address", address, port, tls.context) as number:
        click.echo(f"The page of this node is on {address}, port {number} (https). Ctrl-C ends it.")
        sys.stdout.flush()
        following = asyncio.create_task(tls.follow(agent), name="certificates")
    following.cancel()


@asynccontextmanager
async def _listening(
    pages: Pages, flag: str, address: str, port: int, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve the pages until SIGINT or SIGTERM comes after the context's body; yields the port."""
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    ended = asyncio.Event()
    for ending in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(ending, ended.set)
    try:
        async with serving(pages.respond, flag, address, port, tls=tls) as number:
            yield number
            await ended.wait()
    except InvalidConfig as error:
        raise click.ClickException(str(error)) from error
    finally:
        await pages.close()


if __name__ == "__main__":
    main()
