"""``kubeletx explain``."""

from __future__ import annotations

import re

import pytest

from kubeletx.api import names
from kubeletx.cli.commands.objects.explain import own_annotations
from tests.unit.cli.commands.objects import Run

OF_OTHERS = {
    *(
        f"{name}VolumeSource"
        for name in [
            "GCEPersistentDisk",
            "AWSElasticBlockStore",
            "GitRepo",
            "ISCSI",
            "Glusterfs",
            "RBD",
            "Cinder",
            "CephFS",
            "Flocker",
            "FC",
            "AzureFile",
            "Quobyte",
            "AzureDisk",
            "PhotonPersistentDisk",
            "Portworx",
            "ScaleIO",
            "StorageOS",
            "CSI",
            "VsphereVirtualDisk",
        ]
    ),
    *("Affinity", "TopologySpreadConstraint", "PodSchedulingGroup"),
    *("ClusterTrustBundleProjection", "PodCertificateProjection", "PodResourceClaim", "ResourceClaim"),
    *("SELinuxOptions", "WindowsSecurityContextOptions"),
}
"""Types of fields that a driver, the scheduler or another part of a cluster carries out, or another system."""


def test_a_kind_is_explained_with_its_fields(kubeletx: Run) -> None:
    result = kubeletx("explain", "pods")
    assert result.exit_code == 0
    assert result.stdout.startswith(
        "KIND:       Pod\nVERSION:    v1\n\nDESCRIPTION:\n    A pod: its desired state"
    )
    assert "  spec\t<PodSpec>\n" in result.stdout


def test_a_field_is_explained_by_its_path(kubeletx: Run) -> None:
    result = kubeletx("explain", "pod.spec.containers")
    assert "FIELD: containers <[]Container>\n" in result.stdout
    assert "  env\t<[]EnvVar>\n" in result.stdout
    assert "  imagePullPolicy\t<string>\n" in result.stdout
    assert "FIELD: nodeSelector <map[string]string>" in kubeletx("explain", "pod.spec.nodeSelector").stdout


def test_machines_have_a_word_of_their_own(kubeletx: Run) -> None:
    result = kubeletx("explain", "virtualMachine")
    assert "  powerSpec\t<string>\n    Running, Paused, Shutdown or Suspended\n" in result.stdout
    assert "base64, as in the manifest" in kubeletx("explain", "vm.userData").stdout
    assert "    resourceName\t<string>\n" in kubeletx("explain", "vm", "--recursive").stdout


def test_every_field_that_the_node_carries_out_has_a_description(kubeletx: Run) -> None:
    seen, without = set(OF_OTHERS), []

    def look(path: str) -> None:
        fields = kubeletx("explain", path).stdout.partition("FIELDS:\n")[2]
        for name, kind, text in re.findall(
            r"^  (\w+)\t<(?:\[\])?(.*)>\n((?:    .+\n)*)", fields, re.MULTILINE
        ):
            if not text:
                without.append(f"{path}.{name}")
            if kind[0].isupper() and kind not in seen:
                seen.add(kind)
                look(f"{path}.{name}")

    look("pod.spec")
    assert without == []
    assert {"Probe", "EmptyDirVolumeSource", "EnvVarSource", "VirtualMachine", "Sysctl"} <= seen


def test_a_description_is_of_the_whole_and_not_of_its_fields(kubeletx: Run) -> None:
    result = kubeletx("explain", "pod.spec.containers.livenessProbe")
    assert "    check that restarts it when it fails. Periodic check of a container.\n" in result.stdout
    result = kubeletx("explain", "pod.spec.containers.livenessProbe.periodSeconds")
    assert "DESCRIPTION:\n    time between two checks; default 10.\n" in result.stdout


def test_every_annotation_of_machines_and_of_standby_is_explained(kubeletx: Run) -> None:
    result = kubeletx("explain", "annotations")
    wanted = {
        value
        for name, value in vars(names).items()
        if name.startswith(("VM_", "STANDBY", "SESSION")) and str(value).startswith(names.OWN_PREFIX)
    } - {names.VM_PREFIX, names.STANDBY_CONDITION}
    explained = dict(own_annotations())
    assert wanted <= set(explained)
    assert all(f"  {key}\n" in result.stdout for key in explained)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("deployment", "known: pod, virtualMachine, annotations"),
        ("pod.spec.contaners", "field \"contaners\" does not exist; did you mean 'containers'?"),
        ("pod.metadata.name.first", 'field "first" does not exist'),
    ],
)
def test_what_does_not_exist_is_a_mistake(path: str, said: str, kubeletx: Run) -> None:
    result = kubeletx("explain", path)
    assert result.exit_code == 2
    assert said in result.stderr
