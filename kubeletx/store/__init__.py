"""The state database: one SQLite file and one thread, which commits waiting writes together. Knows no domain type."""

from .engine import SCHEMA_VERSION
from .rows import checked, moment_of, read_rows, upsert
from .store import Store

__all__ = ["SCHEMA_VERSION", "Store", "checked", "moment_of", "read_rows", "upsert"]
