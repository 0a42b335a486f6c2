"""Volumes that volume drivers prepare and release: table of drivers, requests, journal, calls, expansion."""

from .table import DriverEntry, VolumeDrivers

__all__ = ["DriverEntry", "VolumeDrivers"]
