"""Settings of a simulated core. The defaults are those of a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

MIB = 1 << 20


class Tls(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files of the core's server. `client_ca_file`: a node needs a certificate of this CA; None: it needs none."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None


class CoreSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one core. Time-outs are in seconds.

    `create_seconds`: a pod that is not Running after that is terminated. `open_seconds`: a session without
    openTimeoutSeconds times out after that. `terminate_repeat_seconds`, `close_repeat_seconds`: POD_TERMINATE and
    SESSION_CLOSE are repeated after that. `receive_bytes`: largest message from a node; 4 MiB is gRPC's default.
    `daemon_pods`: Pods as JSON values. `has_line`: nodes connect through a `Line`, which silence and broken
    connections need; False: they connect to gRPC's own socket, for benchmarks. `keep_messages`: the history has the messages
    themselves, not only what they are about.
    """

    name: str = "core"
    listen: str = "127.0.0.1:0"
    create_seconds: float = 30
    open_seconds: float = 10
    terminate_repeat_seconds: float = 30
    close_repeat_seconds: float = 60
    receive_bytes: int = 4 * MIB
    cluster_domain: str = "cluster.local"
    pod_cidr: str = "192.168.0.1/24"
    daemon_pods: tuple[dict[str, Any], ...] = ()
    tls: Tls | None = None
    has_line: bool = True
    keep_messages: bool = True
