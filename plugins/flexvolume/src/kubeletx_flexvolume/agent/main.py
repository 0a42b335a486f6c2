"""Command ``kubeletx-flexvolume``: the storage agent, its state, and the administrator's commands.

Modules are imported by the command that needs them, so that ``status``, a readiness probe, starts quickly. Exit codes:
0; 1 if something failed or is not ready; 2 if an option is wrong.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..attachments.commands import add_commands, user_errors

if TYPE_CHECKING:
    from .config import AgentConfig

_STATE_DIR = Path("/var/lib/kubeletx-storage")
_PATH = click.Path(path_type=Path)
_CLUSTERS = ("storage.kubeletx.io/v1alpha1/storageclusters",)


@click.group(context_settings={"show_default": True})
@click.version_option(package_name="kubeletx-flexvolume")
def main() -> None:
    """Storage agent of a node, behind the FlexVolume driver kubeletx.io/storage."""


add_commands(main)


@main.command()
@click.option(
    "--volume-plugin-dir",
    "volume_plugin_dirs",
    multiple=True,
    type=_PATH,
    help="Plugin directory of a kubelet, in which the driver is installed. May be given several times. "
    "[default: /usr/libexec/kubernetes/kubelet-plugins/volume/exec]",
)
@click.option(
    "--known-plugin-dirs/--no-known-plugin-dirs",
    "use_known_plugin_dirs",
    default=True,
    help="Install the driver also into those plugin directories of well-known distributions that exist.",
)
@click.option(
    "--kubelet-root-dir",
    "kubelet_root_dirs",
    multiple=True,
    type=_PATH,
    default=["/var/lib/kubelet"],
    help="Root directory of a kubelet, below which volumes are mounted. May be given several times.",
)
@click.option(
    "--state-dir",
    type=_PATH,
    default=_STATE_DIR,
    help="Directory of journals, locks and the socket of 'status'.",
)
@click.option("--node-name", default="", metavar="NAME", help="Name of the node. [default: the host name]")
@click.option(
    "--pool",
    "pools",
    multiple=True,
    metavar="NAME=DIR[,shared]",
    help="Directory with images of backends loop, fuse and directory. shared: other machines reach it, too.",
)
@click.option(
    "--mount-namespace-of",
    type=int,
    metavar="PID",
    help="Mount in the mount namespace of this process, with nsenter. [default: the agent's own]",
)
@click.option(
    "--mount-timeout",
    "mount_seconds",
    type=float,
    default=110.0,
    metavar="SECONDS",
    help="Seconds after which a mount is answered as failed.",
)
@click.option(
    "--unmount-timeout",
    "unmount_seconds",
    type=float,
    default=110.0,
    metavar="SECONDS",
    help="Seconds after which an unmount is answered as failed.",
)
@click.option(
    "--storage-kubeconfig",
    type=_PATH,
    help="Kubeconfig of the storage identity: attachment records are custom resources.",
)
@click.option(
    "--records",
    type=_PATH,
    help="SQLite file with the attachment records, shared by the agents of this machine. "
    "[default: records/records.db in the state directory]",
)
@click.option(
    "--break-policy",
    type=click.Choice(("safe", "seed")),
    default="safe",
    help="When the lock of another holder is broken.",
)
@click.option(
    "--fs-group",
    type=click.Choice(("kubelet", "top-directory")),
    default="kubelet",
    help="Who applies the fsGroup: the kubelet to all files, or the agent to the top directory.",
)
@click.option(
    "--selinux-relabel/--no-selinux-relabel",
    default=False,
    help="Let kubelets relabel the files of volumes for SELinux.",
)
@click.option(
    "--lease-namespace",
    default="kubeletx-storage",
    help="Namespace of the Lease of the agent that scans the records.",
)
@click.option(
    "--cluster-resource",
    "cluster_resources",
    multiple=True,
    default=_CLUSTERS,
    metavar="GROUP/VERSION/PLURAL",
    help="Custom resource of storage clusters. May be given several times.",
)
@click.option("--log-format", type=click.Choice(("text", "json")), default="text")
@click.option("--verbose", is_flag=True, help="Log debug messages.")
@click.option("--boot-id", default="", hidden=True)
def agent(
    log_format: str, verbose: bool, boot_id: str, node_name: str, pools: tuple[str, ...], **options: Any
) -> None:
    """Run the storage agent of this node until SIGTERM."""
    import asyncio

    from kubeletx.api import PermissionDenied
    from kubeletx.linux.boot import boot_id as read_boot_id

    from .config import AgentConfig, check_config, parse_pool

    with user_errors():
        config = check_config(
            AgentConfig(
                node_name=node_name or os.uname().nodename.lower(),
                boot_id=boot_id or read_boot_id(),
                pools=tuple(parse_pool(pool) for pool in pools),
                **options,
            )
        )
        if os.geteuid() != 0:
            raise PermissionDenied("the storage agent mounts volumes and attaches devices; run it as root")
        os.umask(0o022)  # its own directories must not be writable for others, whatever started it
        set_up_logs(log_format, is_verbose=verbose)
        asyncio.run(_run(config))


def set_up_logs(format: str = "text", *, is_verbose: bool = False) -> None:
    """Log one line per event on standard error. `format`: text or json. `is_verbose`: with debug messages."""
    import logging
    import sys

    import structlog

    renderer: Any = structlog.processors.JSONRenderer(sort_keys=False)
    if format == "text":
        renderer = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), sort_keys=False, pad_event_to=0)
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG if is_verbose else logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


@main.command()
@click.option("--state-dir", type=_PATH, default=_STATE_DIR)
@click.option(
    "--ready", is_flag=True, help="Print nothing, and exit with 0 only if a kubelet has found the driver."
)
def status(state_dir: Path, ready: bool) -> None:
    """Show the state of the running agent as JSON."""
    import json

    from .wire import ask_agent

    with user_errors():
        state = ask_agent(state_dir)
    if not ready:
        click.echo(json.dumps(state, indent=2))
    elif not state["isReady"]:
        raise click.ClickException(
            "no kubelet has called the driver's init yet; check that its program is in the kubelet's --volume-plugin-dir"
        )


@main.command()
@click.option(
    "--volume-plugin-dir",
    "directories",
    multiple=True,
    type=_PATH,
    help="Plugin directory. May be given several times. [default: those of 'agent']",
)
def uninstall(directories: tuple[Path, ...]) -> None:
    """Remove the driver from plugin directories.

    Stop the agent before. Mounted volumes stay; to unmount them, delete their pods before you stop the agent.
    """
    from .installer import install_places
    from .installer import uninstall as remove
    from .sockets import find_agent

    for place in install_places(directories) if not directories else install_places(directories, known=()):
        pid = find_agent(place.socket_directory)
        if pid is not None:
            raise click.ClickException(
                f"the storage agent, PID {pid}, serves {place.directory}; stop it before"
            )
        try:
            was_there = remove(place)
        except OSError as error:
            raise click.ClickException(f"{place.directory}: {error.strerror}") from error
        click.echo(f"{place.executable}: {'removed' if was_there else 'was not there'}")


async def _run(config: AgentConfig) -> None:
    import asyncio
    import signal

    from kubeletx.api import SystemClock

    from .lifecycle import run_agent

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await run_agent(config, clock=SystemClock(), stop=stop)


if __name__ == "__main__":
    main()
