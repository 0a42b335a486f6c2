"""configMap volumes: the keys of a config map as files (V4 in docs/kubelet-parity.md)."""

from __future__ import annotations

from .. import layout
from ..prepared import PreparedVolume, SetUp
from .payload import find_config_map, object_files, write_volume


def set_up(request: SetUp) -> PreparedVolume:
    """Write the present keys of the config map as files of the volume; update the files if they exist already."""
    source = request.volume.config_map
    assert source is not None
    field, optional = f"{request.field}.configMap", bool(source.optional)
    files = object_files(
        find_config_map(request.objects, source.name, optional=optional, field=field),
        source.items,
        source.default_mode,
        optional=optional,
        what=f'configmap "{source.name}"',
        field=field,
    )
    return write_volume(request, layout.CONFIG_MAP, files, in_memory=False, optional=optional)
