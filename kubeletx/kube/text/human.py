"""Texts for people: durations, sizes and amounts of CPU, as kubectl and crictl write them."""

from __future__ import annotations

from datetime import datetime

_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400


def human_duration(seconds: float) -> str:
    """Format a duration as kubectl does, in one or two units; ``<invalid>`` for one below -1 s.

    Examples: ``45s``, ``3m20s``, ``25m``, ``5h10m``, ``30h``, ``6d4h``, ``90d``, ``2y30d``.
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    if whole < 10 * _MINUTE:
        return _two(whole, _MINUTE, "m", 1, "s")
    if whole < 3 * _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < 8 * _HOUR:
        return _two(whole, _HOUR, "h", _MINUTE, "m")
    if whole < 2 * _DAY:
        return f"{whole // _HOUR}h"
    if whole < 8 * _DAY:
        return _two(whole, _DAY, "d", _HOUR, "h")
    if whole < 2 * _YEAR:
        return f"{whole // _DAY}d"
    if whole < 8 * _YEAR:
        return _two(whole, _YEAR, "y", _DAY, "d")
    return f"{whole // _YEAR}y"


def human_seconds(seconds: float) -> str:
    """Format a short time with its unit: ``2 ms``, ``1.1 s``, ``42 s``; from two minutes on as `human_duration`."""
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 2 * _MINUTE else human_duration(seconds)


def _two(whole: int, unit: int, letter: str, small: int, small_letter: str) -> str:
    rest = whole % unit // small
    return f"{whole // unit}{letter}" + (f"{rest}{small_letter}" if rest else "")


def age(since: datetime | None, now: datetime) -> str:
    """Format the time from `since` until `now`; ``<unknown>`` if `since` is None."""
    return human_duration((now - since).total_seconds()) if since is not None else "<unknown>"


def human_bytes(size: int | None) -> str:
    """Format a number of bytes in decimal units, as crictl does, such as ``1.5GB``; ``<unknown>`` for None."""
    if size is None:
        return "<unknown>"
    number = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.3g}{unit}"
        number /= 1000
    return f"{number:.3g}TB"


def mebibytes(size: int | None) -> str:
    """Format a number of bytes as ``128Mi``, as ``kubectl top`` does; below 10Mi as ``1.5Mi``. None: ``<unknown>``."""
    if size is None:
        return "<unknown>"
    tenths = size * 10 // (1024 * 1024)
    return f"{tenths / 10}Mi" if size > 0 and tenths < 100 else f"{tenths // 10}Mi"


def millicores(amount: int | None) -> str:
    """Format an amount of CPU as ``250m``, as ``kubectl top`` does; ``<unknown>`` for None."""
    return "<unknown>" if amount is None else f"{amount}m"
