"""Writes kubeconfig files for users of a test cluster. Source: client-go, tools/clientcmd/api/v1/types.go."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import yaml

from .ca import Pair


def write_kubeconfig(
    path: Path, server: str, ca_file: Path, credentials: Pair | str, embed: bool = False
) -> Path:
    """Write a kubeconfig file with one cluster and one user; returns its path.

    `server`: URL of the API server. `credentials`: certificate files or a bearer token. `embed`: True writes
    the certificates as data; False writes the paths of their files.
    """
    cluster: dict[str, Any] = {"server": server, **_file("certificate-authority", ca_file, embed)}
    user: dict[str, Any] = (
        {"token": credentials}
        if isinstance(credentials, str)
        else {
            **_file("client-certificate", credentials.cert_file, embed),
            **_file("client-key", credentials.key_file, embed),
        }
    )
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
        "current-context": "test",
    }
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def _file(field: str, path: Path, embed: bool) -> dict[str, str]:
    if embed:
        return {f"{field}-data": base64.b64encode(path.read_bytes()).decode()}
    return {field: str(path)}
