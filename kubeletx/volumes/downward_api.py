"""downwardAPI volumes: fields of the pod as files, kept up to date (kubelet V4, V5).

On disk: what is in them is in the manifest as well.
"""

from __future__ import annotations

from . import layout
from .payload import downward_files, write_volume
from .prepared import PreparedVolume, SetUp


def set_up(request: SetUp) -> PreparedVolume:
    """Write the files as the pod is now."""
    source = request.volume.downward_api
    assert source is not None
    files = downward_files(request, source.items, source.default_mode, f"{request.field}.downwardAPI")
    return write_volume(request, layout.DOWNWARD_API, files, in_memory=False)
