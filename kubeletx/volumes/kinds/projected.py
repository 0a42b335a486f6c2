"""projected volumes: the files of several sources in one directory (V4, V6 in docs/kubelet-parity.md).

Sources clusterTrustBundle and podCertificate are refused; only an optional clusterTrustBundle of a pod whose source has
no cluster is left out instead. The volume is on tmpfs if a secret or a token is among its sources.
"""

from __future__ import annotations

from kubeletx.kube.types.core import VolumeProjection

from .. import layout
from ..prepared import PreparedVolume, SetUp, VolumeError
from .payload import (
    Files,
    check_size,
    downward_files,
    find_config_map,
    find_secret,
    object_files,
    size_of,
    token_file,
    write_volume,
)


def set_up(request: SetUp) -> PreparedVolume:
    """Write the files of all sources to the volume. If two files have the same path, the later source is used."""
    source = request.volume.projected
    assert source is not None
    files: Files = {}
    size = 0
    for index, one in enumerate(source.sources):
        field = f"{request.field}.projected.sources[{index}]"
        found = _files(request, one, source.default_mode, field)
        size += size_of(found)
        check_size(size, f"{request.field}.projected")
        files |= found
    in_memory = any(one.secret is not None or one.service_account_token is not None for one in source.sources)
    optional = any(_is_optional(one) for one in source.sources)
    return write_volume(request, layout.PROJECTED, files, in_memory=in_memory, optional=optional)


def _is_optional(source: VolumeProjection) -> bool:
    may_be_missing = (source.config_map, source.secret, source.cluster_trust_bundle)
    return any(one is not None and bool(one.optional) for one in may_be_missing)


def _files(request: SetUp, source: VolumeProjection, mode: int | None, field: str) -> Files:
    if source.downward_api is not None:
        return downward_files(request, source.downward_api.items, mode, f"{field}.downwardAPI")
    if source.config_map is not None:
        config, field = source.config_map, f"{field}.configMap"
        return object_files(
            find_config_map(request.objects, config.name, optional=bool(config.optional), field=field),
            config.items,
            mode,
            optional=bool(config.optional),
            what=f'configmap "{config.name}"',
            field=field,
        )
    if source.secret is not None:
        secret, field = source.secret, f"{field}.secret"
        return object_files(
            find_secret(request.objects, secret.name, optional=bool(secret.optional), field=field),
            secret.items,
            mode,
            optional=bool(secret.optional),
            what=f'secret "{secret.name}"',
            field=field,
        )
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
