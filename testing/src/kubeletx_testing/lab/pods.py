"""Makes small pod manifests for tests and benchmarks, and writes them into an agent's manifest directory."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from .images import image_ref

SLEEP: Final = ("sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait; done")
"""Command of a container that runs until the stop signal, and then ends at once."""


def pod_manifest(
    name: str,
    *,
    runtime: str | None = None,
    image: str = "busybox",
    command: Sequence[str] | None = SLEEP,
    container: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the manifest of a pod with one container, ``main``.

    `runtime`: value of runtimeServiceName; None: not set. `image`: name of a lab image, or a reference with a
    slash. `command`: None: the image's own command. `container`, `spec` and `metadata`: fields to add to the
    container, the spec and the metadata; they replace fields of the same name.
    """
    main: dict[str, Any] = {"name": "main", "image": image_ref(image) if "/" not in image else image}
    if command is not None:
        main["command"] = list(command)
    body: dict[str, Any] = {"terminationGracePeriodSeconds": 2, "containers": [{**main, **(container or {})}]}
    if runtime is not None:
        body["runtimeServiceName"] = runtime
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **(metadata or {})},
        "spec": {**body, **(spec or {})},
    }


def put_manifest(directory: Path, manifest: Mapping[str, Any] | bytes, *, name: str | None = None) -> Path:
    """Write a manifest into `directory` atomically, replacing an older one; returns its path.

    `manifest`: bytes are written unchanged and need a `name`. `name`: file name; None: ``POD.json``.
    """
    if name is None:
        if isinstance(manifest, bytes):
            raise ValueError("raw manifests need a file name")
        name = f"{manifest['metadata']['name']}.json"
    data = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    temporary = directory.parent / f".{name}.new"
    temporary.write_bytes(data)
    return temporary.rename(directory / name)
