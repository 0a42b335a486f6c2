"""Volumes whose files the agent writes: configMap, secret, downwardAPI and projected (V4 to V6 in docs/kubelet-parity.md).

The keys of a secret, and tokens, are on a tmpfs and never on a disk. Fields of the pod are on disk, since their content
is not secret: it is in the manifest too. Sources clusterTrustBundle and podCertificate of a projected volume are refused;
only an optional clusterTrustBundle of a pod whose source has no cluster is left out instead. A second set-up updates the
files.
"""

from __future__ import annotations

from kubeletx.kube.types.core import VolumeProjection

from .. import layout
from ..prepared import PreparedVolume, SetUp, VolumeError
from .payload import (
    Files,
    check_size,
    config_map_files,
    downward_files,
    secret_files,
    size_of,
    token_file,
    write_volume,
)


def set_up_config_map(request: SetUp) -> PreparedVolume:
    """Write the present keys of the config map as files of the volume."""
    source = request.volume.config_map
    assert source is not None
    files = config_map_files(request, source, source.default_mode, f"{request.field}.configMap")
    return write_volume(request, layout.CONFIG_MAP, files, in_memory=False, optional=bool(source.optional))


def set_up_secret(request: SetUp) -> PreparedVolume:
    """Write the present keys of the secret as files of the volume."""
    source = request.volume.secret
    assert source is not None
    name, field = source.secret_name or "", f"{request.field}.secret"
    files = secret_files(request, name, source, source.default_mode, field)
    return write_volume(request, layout.SECRET, files, in_memory=True, optional=bool(source.optional))


def set_up_downward_api(request: SetUp) -> PreparedVolume:
    """Write the present values of the pod's fields as files of the volume."""
    source = request.volume.downward_api
    assert source is not None
    files = downward_files(request, source.items, source.default_mode, f"{request.field}.downwardAPI")
    return write_volume(request, layout.DOWNWARD_API, files, in_memory=False)


def set_up_projected(request: SetUp) -> PreparedVolume:
    """Write the files of all sources to the volume. If two files have the same path, the later source is used."""
    source = request.volume.projected
    assert source is not None
    files: Files = {}
    size = 0
    for index, projection in enumerate(source.sources):
        field = f"{request.field}.projected.sources[{index}]"
        projected = _files(request, projection, source.default_mode, field)
        size += size_of(projected)
        check_size(size, f"{request.field}.projected")
        files |= projected
    in_memory = any(
        item.secret is not None or item.service_account_token is not None for item in source.sources
    )
    optional = any(_is_optional(item) for item in source.sources)
    return write_volume(request, layout.PROJECTED, files, in_memory=in_memory, optional=optional)


def _is_optional(source: VolumeProjection) -> bool:
    may_be_missing = (source.config_map, source.secret, source.cluster_trust_bundle)
    return any(projection is not None and bool(projection.optional) for projection in may_be_missing)


def _files(request: SetUp, source: VolumeProjection, mode: int | None, field: str) -> Files:
    if source.downward_api is not None:
        return downward_files(request, source.downward_api.items, mode, f"{field}.downwardAPI")
    if source.config_map is not None:
        return config_map_files(request, source.config_map, mode, f"{field}.configMap")
    if source.secret is not None:
        return secret_files(request, source.secret.name, source.secret, mode, f"{field}.secret")
    if source.service_account_token is not None:
        return token_file(request, source.service_account_token, mode, f"{field}.serviceAccountToken")
    if (
        source.cluster_trust_bundle is not None
        and source.cluster_trust_bundle.optional
        and request.objects is None
    ):
        return {}
    if source.cluster_trust_bundle is None and source.pod_certificate is None:
        raise VolumeError(
            field=field,
            problem="a projected source is empty: the API server drops kinds of sources that it does not serve",
            fix="use serviceAccountToken, downwardAPI, configMap or secret, or enable the feature in the API server",
        )
    kind = "clusterTrustBundle" if source.cluster_trust_bundle is not None else "podCertificate"
    raise VolumeError(
        field=f"{field}.{kind}",
        problem="kubeletx does not support this type of source",
        fix="use serviceAccountToken, downwardAPI, configMap or secret",
    )
