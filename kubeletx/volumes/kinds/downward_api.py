"""downwardAPI volumes: fields of the pod as files, kept up to date (V4, V5 in docs/kubelet-parity.md).

The files are on disk, not on tmpfs, since their content is not secret: it is in the manifest too.
"""

from __future__ import annotations

from .. import layout
from ..prepared import PreparedVolume, SetUp
from .payload import downward_files, write_volume


def set_up(request: SetUp) -> PreparedVolume:
    """Write the present values of the pod's fields as files of the volume; update the files if they exist already."""
    source = request.volume.downward_api
    assert source is not None
    files = downward_files(request, source.items, source.default_mode, f"{request.field}.downwardAPI")
    return write_volume(request, layout.DOWNWARD_API, files, in_memory=False)
