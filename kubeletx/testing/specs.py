"""Functions that make valid specs for tests: `sandbox_spec` and `unit_spec`."""

from __future__ import annotations

from typing import Any

from kubeletx.api import ImageSpec, PodUid, Process, SandboxSpec, UnitSpec, names


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
