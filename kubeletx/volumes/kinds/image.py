"""Image volumes: the content of an OCI image, which the runtime mounts read-only (V8 in docs/kubelet-parity.md).

Nothing is prepared on the node; the image reference is passed to the runtime as `Mount.image`. A runtime that does not
have the image refuses the container. `pods.unit_images` checks that the pod may use the image.
"""

from __future__ import annotations

from ..prepared import PreparedVolume, SetUp, VolumeError


def set_up(request: SetUp) -> PreparedVolume:
    """Check the volume's fields and return its image reference; the runtime mounts the image."""
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
