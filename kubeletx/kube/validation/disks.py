"""Rules for volumes on storage outside of the node. Source: kubernetes, pkg/apis/core/validation."""

from __future__ import annotations

from ..types.volumes import (
    AzureDiskVolumeSource,
    FCVolumeSource,
    FlockerVolumeSource,
    ISCSIVolumeSource,
    QuobyteVolumeSource,
    Volume,
)
from . import words
from .problems import Problems, show


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
    problems.exactly_one(field, [word for word, found in names.items() if found], names, "list")
    if source.target_wwns and source.lun is None:
        problems.add(f"{field}.lun", "is missing with targetWWNs", "set it")


def _check_flocker(field: str, source: FlockerVolumeSource, problems: Problems) -> None:
    names = {"datasetName": source.dataset_name, "datasetUUID": source.dataset_uuid}
    problems.exactly_one(field, [word for word, found in names.items() if found], names, "dataset")
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
