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
    """The admin socket below `root_dir`. None: of the agent that runs here, as itself or as the kubelet."""
    roots: tuple[Path, ...] = (DEFAULT_ROOT, KUBELET_ROOT)
    if root_dir is not None or as_kubelet:
        roots = (root_dir or KUBELET_ROOT,)
    return next((root / SOCKET for root in roots if (root / SOCKET).exists()), roots[0] / SOCKET)


class Invocation(NamedTuple):
    """Flags before the subcommand; None for those not given."""

    root_dir: Path | None
    config_file: Path | None
    config_dir: Path | None
    flags: dict[str, tuple[str, ...]]
    namespace: str | None = None
    as_kubelet: bool = False

    @property
    def socket_path(self) -> Path:
        """The admin socket of the selected agent."""
        return find_socket(self.root_dir, as_kubelet=self.as_kubelet)

    @property
    def has_agent_flags(self) -> bool:
        """True if a flag other than --root-dir was given."""
        return bool(self.flags or self.config_file or self.config_dir)

    def refuse_agent_flags(self) -> None:
        """Raise a usage error if agent flags were given to a subcommand that would ignore them."""
        if self.has_agent_flags:
            name = next(iter(self.flags), "config" if self.config_file else "config-dir")
            raise click.UsageError(
                f"--{name} is for starting the agent; a command takes only --root-dir before it"
            )

    def load(self) -> AgentConfig:
        """The configuration that an agent started with these flags would have."""
        from kubeletx.agent.config.load import load_config

        return load_config(
            as_kubelet=self.as_kubelet,
            root_dir=self.root_dir,
            config_file=self.config_file,
            config_dir=self.config_dir,
            flags=self.flags,
        )
