"""Commands, files and reboots of guests, through their QEMU guest agents."""

from .agent import GuestAgent
from .boots import Boots
from .commands import GuestCommands

__all__ = ["Boots", "GuestAgent", "GuestCommands"]
