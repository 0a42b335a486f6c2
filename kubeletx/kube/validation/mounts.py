"""Rules for volume mounts and devices of a container or machine. Source: kubernetes, pkg/apis/core/validation."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final

from ..types.container import VolumeDevice, VolumeMount
from . import words
from .problems import Problems, show

_SHOWN: Final = 10
"""Maximum number of volume names in one error; a manifest may have thousands of volumes, and as many errors."""


def check_mounts(
    field: str,
    mounts: tuple[VolumeMount, ...],
    devices: tuple[VolumeDevice, ...],
    volumes: Collection[str],
    privileged: bool,
    problems: Problems,
) -> None:
    """Check that mounts and devices name volumes of the pod, and that no two have the same path.

    `field`: path of the container or machine. `volumes`: names of the pod's volumes. `privileged`: the
    container is privileged, so that mount propagation may be Bidirectional.
    """
    targets: set[str] = set()
    for index, mount in enumerate(mounts):
        where = f"{field}.volumeMounts[{index}]"
        _check_volume(f"{where}.name", mount.name, volumes, problems)
        problems.name(f"{where}.mountPath", mount.mount_path, words.no_nul)
        _check_target(f"{where}.mountPath", mount.mount_path, targets, problems)
        _check_options(where, mount, privileged, problems)
    for index, device in enumerate(devices):
        where = f"{field}.volumeDevices[{index}]"
        _check_volume(f"{where}.name", device.name, volumes, problems)
        problems.name(f"{where}.devicePath", device.device_path, words.absolute_path)
        _check_target(f"{where}.devicePath", device.device_path, targets, problems)


def _check_volume(field: str, name: str, volumes: Collection[str], problems: Problems) -> None:
    if problems.required(field, name) and name not in volumes:
        known = ", ".join(islice(volumes, _SHOWN)) or "none"
        known += ", ..." if len(volumes) > _SHOWN else ""
        problems.add(field, f"{show(name)} is not a volume of this pod", f"use one of spec.volumes ({known})")


def _check_target(field: str, path: str, targets: set[str], problems: Problems) -> None:
    if path and path in targets:
        problems.add(field, f"{show(path)} is mounted twice", "choose another path")
    targets.add(path)


def _check_options(field: str, mount: VolumeMount, privileged: bool, problems: Problems) -> None:
    if mount.sub_path and mount.sub_path_expr:
        problems.add(field, "has subPath and subPathExpr", "keep one of them")
    problems.word(f"{field}.subPath", mount.sub_path, words.relative_path)
    problems.word(f"{field}.subPathExpr", mount.sub_path_expr, words.relative_path)
    propagation = mount.mount_propagation
    problems.one_of(f"{field}.mountPropagation", propagation, ("None", "HostToContainer", "Bidirectional"))
    if propagation == "Bidirectional" and not privileged:
        problems.add(
            f"{field}.mountPropagation", "'Bidirectional' in an unprivileged container", "make it privileged"
        )
    recursive = mount.recursive_read_only
    problems.one_of(f"{field}.recursiveReadOnly", recursive, ("Disabled", "IfPossible", "Enabled"))
    if recursive in ("IfPossible", "Enabled"):
        if not mount.read_only:
            problems.add(f"{field}.recursiveReadOnly", f"{show(recursive)} without readOnly", "set readOnly")
        if propagation not in (None, "None"):
            problems.add(
                f"{field}.recursiveReadOnly", f"{show(recursive)} with mountPropagation", "remove one of them"
            )
