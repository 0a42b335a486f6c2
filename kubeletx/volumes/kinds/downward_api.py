"""downwardAPI volumes: fields of the pod as files, kept up to date (kubelet V4, V5).

They are on disk: their content is in the manifest too.
"""

from __future__ import annotations

from .. import layout
from ..prepared import PreparedVolume, SetUp
from .payload import downward_files, write_volume


def set_up(request: SetUp) -> PreparedVolume:
    """Write the pod's current fields as files."""
    source = request.volume.downward_api
    assert source is not None
    files = downward_files(request, source.items, source.default_mode, f"{request.field}.downwardAPI")
    return write_volume(request, layout.DOWNWARD_API, files, in_memory=False)
