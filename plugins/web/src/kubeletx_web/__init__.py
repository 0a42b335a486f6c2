"""A read-only web page about one node: a process of its own, a client of the admin socket of kubeletx."""

from kubeletx.linux.lean_imports import import_structlog

import_structlog()
