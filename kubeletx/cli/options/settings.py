"""Options given before the subcommand: the agent's root directory, and the agent's own flags."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from kubeletx.agent.config.kubelet_words import KUBELET_ROOT

from .go_flags import boolean

if TYPE_CHECKING:
    from kubeletx.agent.config.tree import AgentConfig

DEFAULT_ROOT = Path("/var/lib/kubeletx")
SOCKET = "kubeletx.sock"

F = TypeVar("F", bound=Callable[..., Any])


def start_options(function: F) -> F:
    """Decorator that adds the options with which an agent finds its settings: directory, files, ``--as-kubelet``."""
    options = (
        boolean(
            "--as-kubelet",
            is_eager=True,
            help="Run as this node's kubelet: its root directory, its process settings, and its form of --version. "
            "The same as calling the program by the name kubelet.",
        ),
        click.option(
            "--root-dir",
            type=click.Path(path_type=Path),
            metavar="PATH",
            help=f"The agent's directory. Default: {DEFAULT_ROOT}, or {KUBELET_ROOT} with --as-kubelet.",
        ),
        click.option(
            "--config",
            "config_file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Configuration file (KubeletConfiguration with a kubeletx section).",
        ),
        click.option(
            "--config-dir",
            type=click.Path(path_type=Path),
            metavar="PATH",
            help="Directory of *.conf files, also in subdirectories, that are read after --config, in order of name.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


def find_socket(
    root_dir: Path | None, *, as_kubelet: bool = False, own: Path = DEFAULT_ROOT, kubelet: Path = KUBELET_ROOT
) -> Path:
    """Return the path of the admin socket below `root_dir`.

    `root_dir` None: below the default directory `own`; if no socket exists there but one below the kubelet's directory,
    that one. `as_kubelet`: without `root_dir`, always below the kubelet's directory.
    """
    if root_dir is not None or as_kubelet:
        return (root_dir or kubelet) / SOCKET
    return next((root / SOCKET for root in (own, kubelet) if (root / SOCKET).exists()), own / SOCKET)


class Invocation(NamedTuple):
    """Options that were given before the subcommand. A path or `namespace` that was not given is None.

    `flags`: texts of the agent's flags that were given, by name. `as_kubelet`: the program runs as the kubelet.
    """

    root_dir: Path | None
    config_file: Path | None
    config_dir: Path | None
    flags: dict[str, tuple[str, ...]]
    namespace: str | None = None
    as_kubelet: bool = False
    longest_seconds: float | None = None
    """Limit of each wait for the agent; None: the command's own."""

    @property
    def socket_path(self) -> Path:
        return find_socket(self.root_dir, as_kubelet=self.as_kubelet)

    @property
    def has_agent_flags(self) -> bool:
        """True if an option was given that only an agent uses at its start: a flag, ``--config``, ``--config-dir``."""
        return bool(self.flags or self.config_file or self.config_dir)

    def refuse_agent_flags(self) -> None:
        """Raise UsageError if agent flags were given. For subcommands, which would ignore these flags."""
        if self.has_agent_flags:
            name = next(iter(self.flags), "config" if self.config_file else "config-dir")
            raise click.UsageError(
                f"--{name} is for starting the agent; a command takes only --root-dir before it"
            )

    def load(self) -> AgentConfig:
        """Return the configuration that an agent started with these options would have; raises its errors."""
        from kubeletx.agent.config.load import load_config

        return load_config(
            as_kubelet=self.as_kubelet,
            root_dir=self.root_dir,
            config_file=self.config_file,
            config_dir=self.config_dir,
            flags=self.flags,
        )
