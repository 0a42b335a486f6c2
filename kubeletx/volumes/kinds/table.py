"""Table of the set-up functions of volume kinds, and `set_up_volume`, which prepares a volume of any kind.

These kinds need only files and mounts of the node. Volumes of volume drivers, nfs among them, do not pass through here
(`drivers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Final

from kubeletx.api import KubeletxError
from kubeletx.kube.types.core import Volume, VolumeSource
from kubeletx.kube.types.meta import json_name

from .. import layout
from ..cluster_objects import Unread
from ..files.atomic_writer import DATA
from ..mounting import mount_error
from ..prepared import PreparedVolume, SetUp, SetUpVolume, VolumeError
from . import empty_dir, host_path, persistent, projected


def _set_up_image(request: SetUp) -> PreparedVolume:
    """Check an image volume (V8 in docs/kubelet-parity.md) and return its image reference.

    Nothing is prepared on the node: the runtime mounts the image read-only, and refuses a container whose image it does
    not have. `pods.unit_images` checks that the pod may use the image.
    """
    source = request.volume.image
    assert source is not None
    if not source.reference:
        raise VolumeError(
            field=f"{request.field}.image.reference", problem="is missing", fix="name the image"
        )
    if source.pull_policy == "Always":
        raise VolumeError(
            field=f"{request.field}.image.pullPolicy",
            problem="Always: this agent does not pull images of volumes",
            fix="pull it on the node (kubeletx image pull) and use IfNotPresent",
        )
    return PreparedVolume(name=request.volume.name, read_only=True, managed=False, image=source.reference)


KINDS: Final[Mapping[str, SetUpVolume]] = {
    "empty_dir": empty_dir.set_up,
    "host_path": host_path.set_up,
    "downward_api": projected.set_up_downward_api,
    "projected": projected.set_up_projected,
    "config_map": projected.set_up_config_map,
    "secret": projected.set_up_secret,
    "image": _set_up_image,
    "persistent_volume_claim": persistent.set_up,
    "ephemeral": persistent.set_up,
}
"""Set-up function of each kind; the key is the attribute of `Volume` that is set."""
_ATTRIBUTES: Final = VolumeSource.__struct_fields__
_sources_of: Final = attrgetter(*_ATTRIBUTES)  # kind_of is called several times for each volume of each pod


def kind_of(volume: Volume) -> str:
    """Return the volume's kind as the name of the `Volume` attribute that is set; ``empty_dir`` if none is set."""
    for name, source in zip(_ATTRIBUTES, _sources_of(volume), strict=True):
        if source is not None:
            return name
    return "empty_dir"


def written_before(request: SetUp, kind: str) -> PreparedVolume | None:
    """Return the volume as an earlier set-up has written it, for use while cluster objects cannot be read.

    None if no files were written, if a reboot has removed them, or if `kind` is not configMap, secret or projected.
    """
    directory = {
        "config_map": layout.CONFIG_MAP,
        "secret": layout.SECRET,
        "projected": layout.PROJECTED,
    }.get(kind)
    if directory is None:
        return None
    path = layout.volume_dir(request.root_dir, request.pod.uid, directory, request.volume.name)
    if not (path / DATA).is_dir():
        return None
    return PreparedVolume(name=request.volume.name, source=str(path), read_only=True)


def set_up_volume(request: SetUp) -> PreparedVolume:
    """Prepare one volume on the node. Raises KubeletxError with reason FailedMount.

    If a cluster object cannot be read and the volume was written before, its files are left unchanged and it is
    returned.
    """
    kind = kind_of(request.volume)
    set_up = KINDS.get(kind)
    if set_up is None:
        driver = getattr(getattr(request.volume, kind), "driver", "")
        raise VolumeError(
            field=f"{request.field}.{json_name(kind)}",
            problem="no volume driver serves " + (f"driver {driver!r}" if driver else "this type of volume"),
            fix="install a plugin that does, or use " + ", ".join(json_name(name) for name in KINDS),
        )
    try:
        return set_up(request)
    except Unread as err:
        if (kept := written_before(request, kind)) is not None:
            return kept
        raise Unread(f"{request.field}.{json_name(kind)}: {err}") from err
    except KubeletxError:
        raise
    except OSError as err:
        raise mount_error(json_name(kind), err) from err


def mount_text(volume_field: str, name: str, problem: str) -> str:
    """Return the event message for a volume that could not be prepared; it begins like the kubelet's message.

    `volume_field`: path of the volume, such as ``spec.volumes[0]``. `problem`: text of the error. A manifest field at
    its beginning is moved to the end.
    """
    field, colon, rest = problem.partition(": ")
    if colon and field.startswith(volume_field):
        problem = f"{rest} ({field})"
    return f'MountVolume.SetUp failed for volume "{name}" : {problem}'
