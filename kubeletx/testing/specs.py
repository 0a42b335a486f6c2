"""Functions that make valid specs and requests for tests: `sandbox_spec`, `unit_spec` and `volume_request`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeletx.api import (
    ImageSpec,
    PodUid,
    Process,
    SandboxSpec,
    UnitSpec,
    VolumePod,
    VolumeRequest,
    names,
)


def sandbox_spec(name: str = "pod", *, uid: str = "", attempt: int = 0, **fields: Any) -> SandboxSpec:
    """Return the spec of a sandbox for the pod `name` in namespace ``default``.

    `uid` empty: ``uid-NAME``. `fields`: further fields of `SandboxSpec`.
    """
    uid = uid or f"uid-{name}"
    fields.setdefault("namespace", "default")
    fields.setdefault("labels", {names.POD_UID: uid, names.POD_NAME: name})
    return SandboxSpec(uid=PodUid(uid), name=name, attempt=attempt, **fields)


def unit_spec(
    name: str = "main",
    *,
    attempt: int = 0,
    image: str = "busybox",
    command: tuple[str, ...] = (),
    **fields: Any,
) -> UnitSpec:
    """Return the spec of a unit that is a process (a container).

    `fields`: further fields of `UnitSpec`, such as `detail`, which replaces the process.
    """
    fields.setdefault("detail", Process(command=command))
    fields.setdefault("labels", {names.CONTAINER_NAME: name})
    return UnitSpec(name=name, attempt=attempt, image=ImageSpec(requested=image), **fields)


def volume_request(root: Path, name: str = "data", *, pod: str = "web", **fields: Any) -> VolumeRequest:
    """Return the request for a volume of the pod `pod` in namespace ``default``, as a volume driver gets it.

    `root`: the agent's root directory; the target is below it, and is not made. `fields`: further fields of
    `VolumeRequest`, such as `options`. Without `source` it is a volume of ``flexVolume:example.com/under-test``.
    """
    from kubeletx.volumes import layout

    if "source" not in fields:
        fields = {"source": "flexVolume", "driver": "example.com/under-test", **fields}
    uid = PodUid(f"uid-{pod}")
    target = layout.driver_volume_dir(
        root,
        uid,
        fields["source"],
        fields.get("driver", ""),
        fields.get("persistent_volume") or name,
        is_block=fields.get("is_block", False),
    )
    fields.setdefault("target", str(target))
    return VolumeRequest(pod=VolumePod(uid=uid, name=pod, namespace="default"), name=name, **fields)
