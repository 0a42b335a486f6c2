from __future__ import annotations

import pytest

from kubeletx.kube.manifests.static_refs import refused_references
from tests.unit.kube.pod_text import full_pod

REFUSED = [
    ("serviceAccountName: a", "", "spec.serviceAccountName", "refers to the service account 'a'"),
    ("serviceAccount: a", "", "spec.serviceAccountName", "refers to the service account 'a'"),
    ("resourceClaims: [{name: gpu}]", "", "spec.resourceClaims[0]", "refers to the resource claim 'gpu'"),
    ("volumes: [{name: v, ephemeral: {}}]", "", "spec.volumes[0].ephemeral", "refers to a claim that the cluster makes"),
    ("volumes: [{name: v, csi: {driver: d}}]", "", "spec.volumes[0].csi", "refers to a CSI driver's attachment"),
    ("volumes: [{name: v, azureFile: {secretName: s, shareName: s}}]", "", "spec.volumes[0].azureFile", "refers to a secret"),
    ("volumes: [{name: v, glusterfs: {endpoints: e, path: p}}]", "", "spec.volumes[0].glusterfs", "refers to endpoints"),
    ("volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]", "", "spec.volumes[0].projected.sources[0].serviceAccountToken", "refers to a service account token"),
    ("volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {path: t}}]}}]", "", "spec.volumes[0].projected.sources[0].clusterTrustBundle", "refers to a trust bundle"),
    ("volumes: [{name: v, projected: {sources: [{podCertificate: {}}]}}]", "", "spec.volumes[0].projected.sources[0].podCertificate", "refers to a pod certificate"),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "container", "field", "problem"), REFUSED)
def test_what_only_an_api_server_can_give_is_refused(
    spec: str, container: str, field: str, problem: str
) -> None:
    (found,) = refused_references(full_pod(spec, container=container), "web.yaml")
    assert (found.field, found.problem) == (field, problem)
    assert found.obj == "web.yaml (pod web)"


@pytest.mark.parametrize(
    "spec",
    [
        "volumes: [{name: v}]",
        "volumes: [{name: v, hostPath: {path: /}}]",
        "volumes: [{name: v, image: {reference: a}}]",
        "volumes: [{name: v, nfs: {server: s, path: /p}}]",
        "volumes: [{name: v, iscsi: {targetPortal: p, iqn: i}}]",
        "volumes: [{name: v, fc: {targetWWNs: [a], lun: 1}}]",
        "volumes: [{name: v, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]",
        "volumes: [{name: v, projected: {sources: [{downwardAPI: {}}]}}]",
        "imagePullSecrets: [{name: s}]",
        "volumes: [{name: v, secret: {secretName: s}}]",
        "volumes: [{name: v, configMap: {name: c}}]",
        "volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]",
        "volumes: [{name: v, iscsi: {targetPortal: p, iqn: i, secretRef: {name: s}}}]",
        "volumes: [{name: v, flexVolume: {driver: d, secretRef: {name: s}}}]",
        "volumes: [{name: v, projected: {sources: [{downwardAPI: {}}, {secret: {name: s}}]}}]",
    ],
)
def test_what_the_node_may_have_itself_is_allowed(spec: str) -> None:
    container = (
        "env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.podIP}}}, "
        "{name: B, valueFrom: {secretKeyRef: {name: s, key: k}}}], envFrom: [{configMapRef: {name: c}}]"
    )
    assert refused_references(full_pod(spec, container=container), "web.yaml") == ()
