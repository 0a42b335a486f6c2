"""The state database: one SQLite file and one thread, which commits waiting writes together.

The package depends on no type of the domain, such as pods or runtimes.
"""

from .engine import SCHEMA_VERSION
from .rows import checked, moment_of, read_rows, upsert
from .store import Store

__all__ = ["SCHEMA_VERSION", "Store", "checked", "moment_of", "read_rows", "upsert"]
