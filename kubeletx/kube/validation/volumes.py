"""Rules for volumes. Source: kubernetes, pkg/apis/core/validation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from ..manifests.volume_defaults import SOURCES, source_names
from ..types.meta import json_name
from ..types.volumes import (
    AzureDiskVolumeSource,
    DownwardAPIVolumeFile,
    EmptyDirVolumeSource,
    FCVolumeSource,
    FlexVolumeSource,
    FlockerVolumeSource,
    HostPathVolumeSource,
    ISCSIVolumeSource,
    KeyToPath,
    ProjectedVolumeSource,
    QuobyteVolumeSource,
    Volume,
    VolumeProjection,
)
from . import words
from .environment import VOLUME_FIELDS, check_field_ref, check_resource_ref
from .problems import Problems, show

_HOST_PATH_TYPES: Final = (
    "",
    "DirectoryOrCreate",
    "Directory",
    "FileOrCreate",
    "File",
    "Socket",
    "CharDevice",
    "BlockDevice",
)
_REQUIRED: Final = {
    "nfs": ("server", "path"),
    "iscsi": ("target_portal", "iqn"),
    "flex_volume": ("driver",),
    "persistent_volume_claim": ("claim_name",),
    "csi": ("driver",),
    "git_repo": ("repository",),
    "glusterfs": ("endpoints", "path"),
    "azure_file": ("secret_name", "share_name"),
    "gce_persistent_disk": ("pd_name",),
    "aws_elastic_block_store": ("volume_id",),
    "cinder": ("volume_id",),
    "vsphere_volume": ("volume_path",),
    "quobyte": ("registry", "volume"),
    "azure_disk": ("disk_name", "disk_uri"),
    "photon_persistent_disk": ("pd_id",),
    "portworx_volume": ("volume_id",),
    "rbd": ("monitors", "image"),
    "cephfs": ("monitors",),
    "scale_io": ("gateway", "system", "volume_name"),
    "storageos": ("volume_name",),
    "ephemeral": ("volume_claim_template",),
    "image": ("reference",),
}
"""Required fields of each volume source."""
_BYTES: Final = ("partition", "lun")
"""Fields of sources that are 0 to 255."""


def check_volumes(volumes: tuple[Volume, ...], problems: Problems) -> None:
    """Check that the volumes' names differ, and that each volume has exactly one valid source."""
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        field = f"spec.volumes[{index}]"
        problems.name(f"{field}.name", volume.name, words.dns_label)
        problems.unique(f"{field}.name", volume.name, seen, "volume")
        sources = source_names(volume)
        names = [json_name(name) for name in sources]
        problems.exactly_one(field, names, (json_name(name) for name in SOURCES), "source")
        check_disk(field, volume, problems)
        for name in sources:
            _check_required(f"{field}.{json_name(name)}", volume, name, problems)
        _check_source(field, volume, problems)


def _check_required(field: str, volume: Volume, source: str, problems: Problems) -> None:
    settings = getattr(volume, source)
    for attribute in _REQUIRED.get(source, ()):
        problems.required(f"{field}.{json_name(attribute)}", getattr(settings, attribute))
    for attribute in _BYTES:
        problems.between(f"{field}.{attribute}", getattr(settings, attribute, None), 0, 255)


def _check_source(field: str, volume: Volume, problems: Problems) -> None:
    if volume.host_path is not None:
        _check_host_path(f"{field}.hostPath", volume.host_path, problems)
    if volume.empty_dir is not None:
        _check_empty_dir(f"{field}.emptyDir", volume.empty_dir, problems)
    if volume.nfs is not None:
        problems.word(f"{field}.nfs.path", volume.nfs.path, words.absolute_path)
    if volume.config_map is not None:
        problems.name(f"{field}.configMap.name", volume.config_map.name, words.dns_subdomain)
        _check_mode(f"{field}.configMap.defaultMode", volume.config_map.default_mode, problems)
        _check_items(f"{field}.configMap.items", volume.config_map.items, problems)
    if volume.secret is not None:
        problems.name(f"{field}.secret.secretName", volume.secret.secret_name, words.dns_subdomain)
        _check_mode(f"{field}.secret.defaultMode", volume.secret.default_mode, problems)
        _check_items(f"{field}.secret.items", volume.secret.items, problems)
    if volume.downward_api is not None:
        _check_mode(f"{field}.downwardAPI.defaultMode", volume.downward_api.default_mode, problems)
        _check_files(f"{field}.downwardAPI.items", volume.downward_api.items, problems)
    if volume.projected is not None:
        _check_projected(f"{field}.projected", volume.projected, problems)
    if volume.flex_volume is not None:
        check_flex_volume(f"{field}.flexVolume", volume.flex_volume, problems)
    if volume.image is not None:
        problems.word(f"{field}.image.reference", volume.image.reference, words.image)
        problems.one_of(
            f"{field}.image.pullPolicy", volume.image.pull_policy, ("Always", "IfNotPresent", "Never")
        )


def _check_host_path(field: str, source: HostPathVolumeSource, problems: Problems) -> None:
    problems.name(f"{field}.path", source.path, words.absolute_path)
    problems.one_of(f"{field}.type", source.type, _HOST_PATH_TYPES)


def _check_empty_dir(field: str, source: EmptyDirVolumeSource, problems: Problems) -> None:
    problems.quantity(f"{field}.sizeLimit", source.size_limit)
    medium = source.medium or ""
    if not medium.startswith("HugePages-"):
        problems.one_of(f"{field}.medium", medium, ("", "Memory", "HugePages"))


def _check_projected(field: str, source: ProjectedVolumeSource, problems: Problems) -> None:
    _check_mode(f"{field}.defaultMode", source.default_mode, problems)
    paths: set[str] = set()
    for index, projection in enumerate(source.sources):
        where = f"{field}.sources[{index}]"
        given = [name for name in projection.__struct_fields__ if getattr(projection, name) is not None]
        allowed = (json_name(name) for name in projection.__struct_fields__)
        problems.exactly_one(where, [json_name(name) for name in given], allowed, "source")
        _check_projection(where, projection, problems)
        for path in _paths(projection):
            if path in paths:
                problems.add(where, f"writes {show(path)}, as another source does", "choose another path")
            paths.add(path)


def _check_projection(field: str, source: VolumeProjection, problems: Problems) -> None:
    if source.config_map is not None:
        problems.name(f"{field}.configMap.name", source.config_map.name, words.dns_subdomain)
        _check_items(f"{field}.configMap.items", source.config_map.items, problems)
    if source.secret is not None:
        problems.name(f"{field}.secret.name", source.secret.name, words.dns_subdomain)
        _check_items(f"{field}.secret.items", source.secret.items, problems)
    if source.downward_api is not None:
        _check_files(f"{field}.downwardAPI.items", source.downward_api.items, problems)
    if source.service_account_token is not None:
        token = source.service_account_token
        problems.name(f"{field}.serviceAccountToken.path", token.path, words.relative_path)
        problems.between(
            f"{field}.serviceAccountToken.expirationSeconds", token.expiration_seconds, 600, 2**32
        )


def _paths(source: VolumeProjection) -> list[str]:
    if source.config_map is not None:
        return [item.path for item in source.config_map.items]
    if source.secret is not None:
        return [item.path for item in source.secret.items]
    if source.downward_api is not None:
        return [item.path for item in source.downward_api.items]
    return [source.service_account_token.path] if source.service_account_token is not None else []


def _check_items(field: str, items: tuple[KeyToPath, ...], problems: Problems) -> None:
    for index, item in enumerate(items):
        problems.name(f"{field}[{index}].key", item.key, words.config_key)
        _check_path(f"{field}[{index}].path", item.path, problems)
        _check_mode(f"{field}[{index}].mode", item.mode, problems)


def _check_files(field: str, items: tuple[DownwardAPIVolumeFile, ...], problems: Problems) -> None:
    for index, item in enumerate(items):
        where = f"{field}[{index}]"
        _check_path(f"{where}.path", item.path, problems)
        _check_mode(f"{where}.mode", item.mode, problems)
        refs = {"fieldRef": item.field_ref, "resourceFieldRef": item.resource_field_ref}
        problems.exactly_one(where, [word for word, ref in refs.items() if ref is not None], refs, "source")
        if item.field_ref is not None:
            check_field_ref(f"{where}.fieldRef", item.field_ref, VOLUME_FIELDS, problems)
        if item.resource_field_ref is not None:
            check_resource_ref(f"{where}.resourceFieldRef", item.resource_field_ref, problems)
            name = item.resource_field_ref.container_name
            problems.required(f"{where}.resourceFieldRef.containerName", name, "name a container")


def _check_path(field: str, path: str, problems: Problems) -> None:
    problems.name(field, path, words.relative_path)
    if path.startswith("..") and ".." not in path.split("/"):
        problems.add(field, f"{show(path)} starts with '..'", "choose another path")


def _check_mode(field: str, mode: int | None, problems: Problems) -> None:
    if mode is not None and not 0 <= mode <= 0o777:
        problems.add(field, f"{mode} is not a file mode", "use 0 to 0777 (octal), 0 to 511 in JSON")


MAX_OPTIONS_BYTES: Final = 128 * 1024
"""Maximum size of all options as JSON: they are one argument of a program. Source: execve(2), MAX_ARG_STRLEN."""
_LONGEST_SHOWN: Final = 64
_RESERVED: Final = (".kubernetes.io", ".k8s.io")

Problem = tuple[str, str, str]
"""Field below the options, such as ``[size]``, what is wrong with it, and what to do."""


def check_flex_volume(field: str, source: FlexVolumeSource, problems: Problems) -> None:
    """Check the source of a volume. `field`: its path, such as ``spec.volumes[0].flexVolume``."""
    problems.word(f"{field}.driver", source.driver, words.driver_name, "write VENDOR/DRIVER")
    if (wrong := options_problem(source.options)) is not None:
        where, problem, fix = wrong
        problems.add(f"{field}.options{where}", problem, fix)


def options_problem(options: Mapping[str, object]) -> Problem | None:
    """Return the first problem of a volume's options; None if they are valid."""
    for key, value in options.items():
        if not isinstance(value, str) or "\0" in key or "\0" in value:
            return f"[{_shown(key)}]", "is not a string without NUL characters", "write a string"
        if f".{key.partition('/')[0].lower()}".endswith(_RESERVED):
            fix = "use a key without '/', or another namespace"
            return f"[{_shown(key)}]", "is in a namespace of Kubernetes, which is reserved", fix
    if len(json.dumps(options)) > MAX_OPTIONS_BYTES:
        problem = f"are more than {MAX_OPTIONS_BYTES} bytes as JSON, which no program can get as an argument"
        return "", problem, "shorten them, or use a file in another volume"
    return None


def _shown(key: str) -> str:
    return key if key.isprintable() and len(key) <= _LONGEST_SHOWN else show(key)


def check_disk(field: str, volume: Volume, problems: Problems) -> None:
    """Check a volume's source, beyond its required fields, if it is on such storage. `field`: path of the volume."""
    if volume.iscsi is not None:
        _check_iscsi(f"{field}.iscsi", volume.name, volume.iscsi, problems)
    if volume.fc is not None:
        _check_fc(f"{field}.fc", volume.fc, problems)
    if volume.flocker is not None:
        _check_flocker(f"{field}.flocker", volume.flocker, problems)
    if volume.quobyte is not None:
        _check_quobyte(f"{field}.quobyte", volume.quobyte, problems)
    if volume.azure_disk is not None:
        _check_azure(f"{field}.azureDisk", volume.azure_disk, problems)
    if volume.storageos is not None:
        where, source = f"{field}.storageos", volume.storageos
        problems.word(f"{where}.volumeName", source.volume_name, words.dns_label)
        problems.word(f"{where}.volumeNamespace", source.volume_namespace, words.dns_label)
    if volume.git_repo is not None:
        problems.word(f"{field}.gitRepo.directory", volume.git_repo.directory, words.relative_path)


def _check_iscsi(field: str, volume: str, source: ISCSIVolumeSource, problems: Problems) -> None:
    problems.word(f"{field}.iqn", source.iqn, words.iscsi_name)
    if source.initiator_name is not None:
        problems.name(f"{field}.initiatorName", source.initiator_name, words.iscsi_name)
        if len(f"{volume}:{source.target_portal}") > 63:
            problem = "has more than 63 characters together with the volume's name, with initiatorName"
            problems.add(f"{field}.targetPortal", problem, "shorten one of them")
    if (source.chap_auth_discovery or source.chap_auth_session) and source.secret_ref is None:
        problems.add(f"{field}.secretRef", "is missing with chapAuthDiscovery or chapAuthSession", "set it")


def _check_fc(field: str, source: FCVolumeSource, problems: Problems) -> None:
    names = {"targetWWNs": source.target_wwns, "wwids": source.wwids}
    problems.exactly_one(field, [word for word, value in names.items() if value], names, "list")
    if source.target_wwns and source.lun is None:
        problems.add(f"{field}.lun", "is missing with targetWWNs", "set it")


def _check_flocker(field: str, source: FlockerVolumeSource, problems: Problems) -> None:
    names = {"datasetName": source.dataset_name, "datasetUUID": source.dataset_uuid}
    problems.exactly_one(field, [word for word, value in names.items() if value], names, "dataset")
    problems.word(f"{field}.datasetName", source.dataset_name, words.no_slash)


def _check_quobyte(field: str, source: QuobyteVolumeSource, problems: Problems) -> None:
    for pair in (source.registry or "").split(","):
        problems.word(f"{field}.registry", pair, words.host_and_port)
    if len(source.tenant or "") > 64:
        problems.add(f"{field}.tenant", "is longer than 64 characters", "write its UUID")


def _check_azure(field: str, source: AzureDiskVolumeSource, problems: Problems) -> None:
    problems.one_of(f"{field}.cachingMode", source.caching_mode, ("None", "ReadOnly", "ReadWrite"))
    problems.one_of(f"{field}.kind", source.kind, ("Shared", "Dedicated", "Managed"))
    start = "/subscriptions/" if source.kind == "Managed" else "https://"
    if source.kind is not None and source.disk_uri and not source.disk_uri.startswith(start):
        fix = f"write one that starts with {start}"
        problems.add(f"{field}.diskURI", f"{show(source.disk_uri)} is not of kind {source.kind}", fix)
