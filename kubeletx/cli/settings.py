"""What stands before the subcommand: which agent is meant, and the agent's own flags."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

if TYPE_CHECKING:
    from kubeletx.agent.config import AgentConfig

DEFAULT_ROOT = Path("/var/lib/kubeletx")


class Invocation(NamedTuple):
    """The outer command's flags; None where none was given."""

    root_dir: Path | None
    config_file: Path | None
    config_dir: Path | None
    flags: dict[str, tuple[str, ...]]
    namespace: str | None = None

    @property
    def socket_path(self) -> Path:
        """The admin socket of the agent that is meant."""
        return (self.root_dir or DEFAULT_ROOT) / "kubeletx.sock"

    @property
    def has_agent_flags(self) -> bool:
        """Whether anything but --root-dir was given."""
        return bool(self.flags or self.config_file or self.config_dir)

    def refuse_agent_flags(self) -> None:
        """For subcommands that would silently do without them."""
        if self.has_agent_flags:
            name = next(iter(self.flags), "config" if self.config_file else "config-dir")
            raise click.UsageError(
                f"--{name} is for starting the agent; a command takes only --root-dir before it"
            )

    def load(self) -> AgentConfig:
        """The configuration that an agent started with these flags would have."""
        from kubeletx.agent.config_load import load_config

        return load_config(
            root_dir=self.root_dir, config_file=self.config_file, config_dir=self.config_dir, flags=self.flags
        )
