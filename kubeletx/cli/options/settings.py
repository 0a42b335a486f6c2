"""Options before the subcommand: the agent's root directory, and the agent's own flags."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from kubeletx.agent.config.kubelet_words import KUBELET_ROOT

if TYPE_CHECKING:
    from kubeletx.agent.config.tree import AgentConfig

DEFAULT_ROOT = Path("/var/lib/kubeletx")
SOCKET = "kubeletx.sock"


def find_socket(root_dir: Path | None, *, as_kubelet: bool = False) -> Path:
    """Return the path of the admin socket below `root_dir`.

    None: below the default directory, or the kubelet's if only there a socket exists. `as_kubelet`: only the
    kubelet's.
    """
    roots: tuple[Path, ...] = (DEFAULT_ROOT, KUBELET_ROOT)
    if root_dir is not None or as_kubelet:
        roots = (root_dir or KUBELET_ROOT,)
    return next((root / SOCKET for root in roots if (root / SOCKET).exists()), roots[0] / SOCKET)


class Invocation(NamedTuple):
    """Options that were given before the subcommand; None for those that were not."""

    root_dir: Path | None
    config_file: Path | None
    config_dir: Path | None
    flags: dict[str, tuple[str, ...]]
    namespace: str | None = None
    as_kubelet: bool = False

    @property
    def socket_path(self) -> Path:
        """Path of the admin socket of the agent that these options select."""
        return find_socket(self.root_dir, as_kubelet=self.as_kubelet)

    @property
    def has_agent_flags(self) -> bool:
        """True if an option that only the start of an agent uses was given: a flag, or --config or --config-dir."""
        return bool(self.flags or self.config_file or self.config_dir)

    def refuse_agent_flags(self) -> None:
        """Raise a usage error if agent flags were given to a subcommand that would ignore them."""
        if self.has_agent_flags:
            name = next(iter(self.flags), "config" if self.config_file else "config-dir")
            raise click.UsageError(
                f"--{name} is for starting the agent; a command takes only --root-dir before it"
            )

    def load(self) -> AgentConfig:
        """Return the configuration that an agent started with these options would have."""
        from kubeletx.agent.config.load import load_config

        return load_config(
            as_kubelet=self.as_kubelet,
            root_dir=self.root_dir,
            config_file=self.config_file,
            config_dir=self.config_dir,
            flags=self.flags,
        )
