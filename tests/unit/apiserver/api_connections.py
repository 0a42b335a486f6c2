"""What is still open between this process and an API server."""

from __future__ import annotations

import psutil

from kubeletx_testing.apiserver import ApiServerDouble


def connections(api: ApiServerDouble) -> list[object]:
    """Of this process to the API server."""
    port = int(api.url.rpartition(":")[2])
    return [one for one in psutil.Process().net_connections() if one.raddr and one.raddr.port == port]
