from __future__ import annotations

import pytest

from kubeletx.kube.manifests.static_refs import refused_references
from tests.unit.kube.pod_text import full_pod

REFUSED = [
    ("serviceAccountName: a", "", "spec.serviceAccountName", "refers to the service account 'a'"),
    ("serviceAccount: a", "", "spec.serviceAccountName", "refers to the service account 'a'"),
    ("imagePullSecrets: [{name: s}]", "", "spec.imagePullSecrets[0]", "refers to the secret 's'"),
    ("resourceClaims: [{name: gpu}]", "", "spec.resourceClaims[0]", "refers to the resource claim 'gpu'"),
    ("volumes: [{name: v, secret: {secretName: s}}]", "", "spec.volumes[0].secret", "refers to a secret"),
    ("volumes: [{name: v, configMap: {name: c}}]", "", "spec.volumes[0].configMap", "refers to a config map"),
    ("volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]", "", "spec.volumes[0].persistentVolumeClaim", "refers to a claim"),
    ("volumes: [{name: v, ephemeral: {}}]", "", "spec.volumes[0].ephemeral", "refers to a claim"),
    ("volumes: [{name: v, csi: {driver: d}}]", "", "spec.volumes[0].csi", "refers to a CSI driver's attachment"),
    ("volumes: [{name: v, azureFile: {secretName: s, shareName: s}}]", "", "spec.volumes[0].azureFile", "refers to a secret"),
    ("volumes: [{name: v, glusterfs: {endpoints: e, path: p}}]", "", "spec.volumes[0].glusterfs", "refers to endpoints"),
    ("volumes: [{name: v, iscsi: {targetPortal: p, iqn: i, secretRef: {name: s}}}]", "", "spec.volumes[0].iscsi.secretRef", "refers to the secret 's'"),
    ("volumes: [{name: v, flexVolume: {driver: d, secretRef: {name: s}}}]", "", "spec.volumes[0].flexVolume.secretRef", "refers to the secret 's'"),
    ("volumes: [{name: v, projected: {sources: [{downwardAPI: {}}, {secret: {name: s}}]}}]", "", "spec.volumes[0].projected.sources[1].secret", "refers to a secret"),
    ("volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]", "", "spec.volumes[0].projected.sources[0].serviceAccountToken", "refers to a service account token"),
    ("volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {path: t}}]}}]", "", "spec.volumes[0].projected.sources[0].clusterTrustBundle", "refers to a trust bundle"),
    ("volumes: [{name: v, projected: {sources: [{podCertificate: {}}]}}]", "", "spec.volumes[0].projected.sources[0].podCertificate", "refers to a pod certificate"),
    ("", "envFrom: [{configMapRef: {name: c}}]", "spec.containers[0].envFrom[0].configMapRef", "refers to the config map 'c'"),
    ("", "envFrom: [{secretRef: {name: s}}]", "spec.containers[0].envFrom[0].secretRef", "refers to the secret 's'"),
    ("", "env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]", "spec.containers[0].env[0].valueFrom.secretKeyRef", "refers to the secret 's'"),
    ("", "env: [{name: A, valueFrom: {configMapKeyRef: {name: c, key: k}}}]", "spec.containers[0].env[0].valueFrom.configMapKeyRef", "refers to the config map 'c'"),
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
    ],
)
def test_what_the_node_has_itself_is_allowed(spec: str) -> None:
    container = "env: [{name: A, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]"
    assert refused_references(full_pod(spec, container=container), "web.yaml") == ()
