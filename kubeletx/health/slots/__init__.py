"""Slots of OS images by boot loader: one file a backend."""

from .slots import BACKENDS as BACKENDS
from .slots import Abilities as Abilities
from .slots import Slots as Slots
from .slots import SlotsError as SlotsError
from .slots import SlotsPending as SlotsPending
from .slots import open_slots as open_slots
