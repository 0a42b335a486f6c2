"""Exact arithmetic on Kubernetes quantities: ``500m``, ``1.5Gi``, ``1e3``.

A quantity is a signed decimal number with a suffix: decimal (n u m k M G T P E), binary (Ki Mi Gi Ti Pi Ei) or a
decimal exponent. It is stored as a whole number of nanos, so sums and comparisons are exact. As upstream, smaller
fractions are rounded away from zero, and a larger value than 2^63-1 becomes 2^63-1. Source: apimachinery,
pkg/api/resource/quantity.go.

Functions that take text are cached: a node sees the same few quantities again and again.
"""

from __future__ import annotations

import enum
import re
from functools import lru_cache
from typing import Final

import msgspec

NANO: Final = 10**9
MAX: Final = 2**63 - 1
_LONGEST: Final = 128
_PATTERN: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d*)(?:\.(?P<part>\d*))?(?P<suffix>[eE][+-]?\d+|[KMGTPE]i|[numkMGTPE]?)",
    re.ASCII,
)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_BY_POWER: Final = {power: suffix for suffix, power in _DECIMAL.items()}
_BINARY: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


class Format(enum.Enum):
    """Notation of a quantity, kept when the quantity is written as text again."""

    DECIMAL = "decimal"
    BINARY = "binary"
    EXPONENT = "exponent"


class Quantity(msgspec.Struct, frozen=True, gc=False):
    """An exact amount. `nanos`: the amount in 10^-9; `format`: its notation. Compare amounts by `nanos`."""

    nanos: int
    format: Format = Format.DECIMAL

    @property
    def value(self) -> int:
        """Whole units, rounded up (away from zero for negative amounts)."""
        return _ceil_div(self.nanos, NANO)

    @property
    def milli_value(self) -> int:
        """Thousandths, rounded up (away from zero for negative amounts)."""
        return _ceil_div(self.nanos, 10**6)

    def __str__(self) -> str:
        """Return the canonical form: the largest suffix that needs no fraction."""
        if self.nanos == 0:
            return "0"
        sign, size = ("-" if self.nanos < 0 else ""), abs(self.nanos)
        if self.format is Format.BINARY and size >= 1024 * NANO:
            return sign + _canonical_binary(_ceil_div(size, NANO))
        number, power = _canonical_decimal(size)
        if self.format is Format.EXPONENT:
            return f"{sign}{number}e{power}" if power else f"{sign}{number}"
        return f"{sign}{number}{_DECIMAL_BY_POWER[power]}"


@lru_cache(maxsize=4096)
def parse(text: str) -> Quantity:
    """Parse a quantity. Raises ValueError whose text can follow the quoted quantity, as in "is not a quantity"."""
    match = _PATTERN.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or not (match["whole"] or match["part"]):
        raise ValueError("is not a quantity")
    part = match["part"] or ""
    digits, power = int((match["whole"] or "") + part), -len(part)
    suffix = match["suffix"]
    multiplier, form = 1, Format.DECIMAL
    if suffix[-1:] == "i":
        multiplier, form = 1024 ** _BINARY.index(suffix), Format.BINARY
    elif len(suffix) > 1:
        power, form = power + int(suffix[1:]), Format.EXPONENT
    else:
        power += _DECIMAL[suffix]
    nanos = min(_shift(digits * multiplier, power + 9), MAX * NANO)
    return Quantity(-nanos if match["sign"] == "-" else nanos, form)


def to_millicores(text: str) -> int:
    """Convert the text of an amount of CPU to millicores, rounded up."""
    return parse(text).milli_value


def to_bytes(text: str) -> int:
    """Convert the text of a quantity, such as a number of bytes, to a whole number, rounded up."""
    return parse(text).value


def from_bytes(size: int) -> str:
    """Return the canonical text of a size in bytes: 1048576 is ``1Mi``."""
    return str(Quantity(size * NANO, Format.BINARY))


def canonical(text: str) -> str:
    """Return the same amount in canonical form: ``0.5`` is ``500m``. Raises ValueError as `parse` does."""
    return str(parse(text))


def add(a: Quantity, b: Quantity) -> Quantity:
    """Add two amounts. The result has the notation of `a`, or of `b` if `a` is zero."""
    return Quantity(a.nanos + b.nanos, a.format if a.nanos else b.format)


def _ceil_div(value: int, by: int) -> int:
    """Divide, and round away from zero."""
    return -(-value // by) if value >= 0 else value // by


def _shift(number: int, power: int) -> int:
    """Compute number * 10^power, rounded away from zero, without building a huge power of ten."""
    if number == 0:
        return 0
    if power > 60:
        return MAX * NANO
    if power >= 0:
        return int(number * 10**power)
    if -power > 2 * _LONGEST:
        return 1
    return _ceil_div(number, int(10**-power))


def _canonical_decimal(nanos: int) -> tuple[int, int]:
    number, power = nanos, -9
    while power < 18 and number % 1000 == 0:
        number, power = number // 1000, power + 3
    return number, power


def _canonical_binary(value: int) -> str:
    step = 0
    while step < len(_BINARY) - 1 and value % 1024 == 0:
        value, step = value // 1024, step + 1
    return f"{value}{_BINARY[step]}"
