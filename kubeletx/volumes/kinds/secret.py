"""secret volumes: the keys of a secret as files on tmpfs, never on a disk (V4 in docs/kubelet-parity.md)."""

from __future__ import annotations

from .. import layout
from ..prepared import PreparedVolume, SetUp
from .payload import find_secret, object_files, write_volume


def set_up(request: SetUp) -> PreparedVolume:
    """Write the secret's current keys as files in the volume; update files that already exist."""
    source = request.volume.secret
    assert source is not None
    field, optional = f"{request.field}.secret", bool(source.optional)
    name = source.secret_name or ""
    files = object_files(
        find_secret(request.objects, name, optional=optional, field=field),
        source.items,
        source.default_mode,
        optional=optional,
        what=f'secret "{name}"',
        field=field,
    )
    return write_volume(request, layout.SECRET, files, in_memory=True, optional=optional)
