"""Compares our verdict about pods with a kubelet's: for each field, the values that authors get wrong.

`pod_variants` makes the pods, from `pod_samples.yaml`. `pod_verdicts.txt` has the values that a kubelet refuses. They were
recorded by hand outside of this repository, with the reader of static pods of a kubelet v1.36: decoding, defaults and
validation, which it shares with the API server. A new field or sample needs such verdicts; until then the test fails and
names it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Final

import pytest

from kubeletx.api import InvalidPod
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.manifests.load import load_manifest
from kubeletx.kube.manifests.static_refs import refused_references
from kubeletx.kube.validation import validate_pod
from tests.unit.kube.validation.pod_variants import WRONG_KIND, missing_fields, variants

VERDICTS: Final = Path(__file__).with_name("pod_verdicts.txt")
STRICTER: Final = {
    "metadata.uid": "_v; v_; 254; x_y; x/y; /x; ../x; x:y",
    "spec.securityContext.seccompProfile.localhostProfile": "empty",
    "spec.containers[0].ports[0].hostIP": "_v; v_; 64; 254; UPPER; wrong; x_y; x/y; /x; ../x; x:y",
    "spec.containers[0].env[3].valueFrom.fileKeyRef.path": "/x",
    "spec.volumes[0].emptyDir.medium": "_v; v_; 64; 254; UPPER; wrong; x_y; x/y; /x; ../x; x:y",
    "spec.volumes[0].hostPath.path": "_v; 64; 254; UPPER; wrong; x_y; x/y; x:y",
    "spec.volumes[1].flexVolume.driver": "/x; ../x",
    "spec.volumes[7].image": "{}",
    "spec.volumes[7].image.reference": "null; _v; v_; empty; left out",
}
"""Values that we refuse and a kubelet takes, on purpose: docs/kubelet-parity.md, "Manifests", has the reasons."""

WHOLE: Final = {
    # --- references to objects of an API server, and what only an API server can add
    "serviceAccountName: a": False,
    "serviceAccount: a": False,
    "imagePullSecrets: [{name: a}]": False,
    "schedulingGates: [{name: a}]": False,
    "ephemeralContainers: [{name: c, image: d}]": False,
    "ephemeralContainers: []": True,
    "resourceClaims: [{name: a, resourceClaimName: b}]": False,
    "resourceClaims: [{name: a, resourceClaimTemplateName: b}]": False,
    "volumes: [{name: v, secret: {secretName: a, items: [{key: b, path: c, mode: 256}], optional: true}}]": False,
    "volumes: [{name: v, secret: null}]": True,
    "volumes: [{name: v, configMap: {name: a, items: [{key: b, path: c, mode: 256}], optional: true}}]": False,
    "volumes: [{name: v, persistentVolumeClaim: {claimName: a, readOnly: true}}]": False,
    "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1}}}}}}]": False,
    "volumes: [{name: v, csi: {driver: a, nodePublishSecretRef: {name: b}}}]": False,
    "volumes: [{name: v, azureFile: {secretName: a, shareName: b}}]": False,
    "volumes: [{name: v, glusterfs: {endpoints: a, path: b}}]": False,
    "volumes: [{name: v, rbd: {monitors: [a], image: b, secretRef: {name: c}}}]": False,
    "volumes: [{name: v, rbd: {monitors: [a], image: b, pool: c, user: d, keyring: e, fsType: f}}]": True,
    "volumes: [{name: v, cephfs: {monitors: [a], secretRef: {name: c}}}]": False,
    "volumes: [{name: v, cephfs: {monitors: [a], path: /b, user: c, secretFile: d}}]": True,
    "volumes: [{name: v, cinder: {volumeID: a, secretRef: {name: c}}}]": False,
    "volumes: [{name: v, flexVolume: {driver: a/b, secretRef: {name: c}}}]": False,
    "volumes: [{name: v, iscsi: {targetPortal: a, iqn: eui.0123456789abcdef, lun: 0, chapAuthSession: true, secretRef: {name: c}}}]": False,
    "volumes: [{name: v, iscsi: {targetPortal: a, iqn: eui.0123456789abcdef, lun: 0, chapAuthDiscovery: true}}]": False,
    "volumes: [{name: v, scaleIO: {gateway: a, system: b, volumeName: d, secretRef: {name: c}}}]": False,
    "volumes: [{name: v, storageos: {volumeName: a, volumeNamespace: b, secretRef: {name: c}}}]": False,
    "volumes: [{name: v, storageos: {volumeName: a}}]": True,
    "volumes: [{name: v, projected: {sources: [{secret: {name: a}}]}}]": False,
    "volumes: [{name: v, projected: {sources: [{configMap: {name: a}}]}}]": False,
    "volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: a}}]}}]": False,
    "volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: a, path: b}}]}}]": False,
    "volumes: [{name: v, projected: {sources: [{podCertificate: {signerName: a.b/c, keyType: ED25519, keyPath: d}}]}}]": False,
    # --- one value beyond a bound
    "dnsConfig: {nameservers: [10.0.0.1, 10.0.0.2, 10.0.0.3]}": True,
    "dnsConfig: {nameservers: [10.0.0.1, 10.0.0.2, 10.0.0.3, 10.0.0.4]}": False,
    "dnsConfig: {nameservers: ['fe80::1%eth0']}": False,
    f"dnsConfig: {{searches: {json.dumps(['a'] * 32)}}}": True,
    f"dnsConfig: {{searches: {json.dumps(['a'] * 33)}}}": False,
    f"dnsConfig: {{searches: {json.dumps(['x' * 250] * 9)}}}": False,
    f"hostname: {'x' * 63}": True,
    f"nodeSelector: {{a: {'x' * 63}}}": True,
    # --- two values that do not fit
    "tolerations: [{key: a, operator: Gt, value: '5'}]": False,
    "tolerations: [{operator: Exists}]": True,
    "tolerations: [{operator: Equal}]": False,
    "tolerations: [{key: a, operator: Exists, value: b}]": False,
    "tolerations: [{key: a, tolerationSeconds: 5}]": False,
    "topologySpreadConstraints: [{maxSkew: 0, topologyKey: a, whenUnsatisfiable: DoNotSchedule}]": False,
    "topologySpreadConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway, minDomains: 1}]": False,
    "topologySpreadConstraints: [&c {maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}, *c]": False,
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: in, values: [b]}]}]}}}": False,
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}": False,
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}": True,
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Gt, values: ['1', '2']}]}]}}}": False,
    "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {}, matchLabelKeys: [b], mismatchLabelKeys: [b]}]}}": False,
    "hostNetwork: true, hostnameOverride: a": False,
    "hostUsers: false, hostPID: true": False,
    "shareProcessNamespace: true, hostPID: true": False,
    "resources: {limits: {cpu: 1}}, containers: [{name: a, image: b, resources: {limits: {cpu: 2}}}]": False,
    "resources: {requests: {cpu: 1}}, containers: [{name: a, image: b, resources: {requests: {cpu: 2}}}]": False,
    "restartPolicy: Never, containers: [{name: a, image: b, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}]}]": False,
    "containers: [{name: a, image: b, resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]}]": False,
    "containers: [{name: a, image: b, resources: {limits: {example.com/a: 1}}}]": True,
    "containers: [{name: a, image: b, resources: {requests: {example.com/a: 1}}}]": False,
    "containers: [{name: a, image: b, resources: {limits: {cpu: 1}, requests: {cpu: 2}}}]": False,
    "containers: [{name: a, image: b, resources: {claims: [{name: c}]}}]": False,
    "containers: [{name: a, image: b, lifecycle: {stopSignal: SIGTERM}}]": False,
    "os: {name: linux}, containers: [{name: a, image: b, lifecycle: {stopSignal: SIGRTMIN+16}}]": False,
    "os: {name: linux}, containers: [{name: a, image: b, lifecycle: {stopSignal: SIGRTMAX-14}}]": True,
    "os: {name: windows}, containers: [{name: a, image: b, lifecycle: {stopSignal: SIGHUP}}]": False,
    "os: {name: linux}, securityContext: {windowsOptions: {runAsUserName: a}}": False,
    "containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: rel/dir}]}], volumes: [{name: v}]": True,
    "containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: /a/../b}]}], volumes: [{name: v}]": True,
    "containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a/}]}], volumes: [{name: v}]": True,
    "containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]}], volumes: [{name: v}]": False,
    "containers: [{name: a, image: b, volumeMounts: [{name: v, mountPath: /a, subPath: c, subPathExpr: d}]}], volumes: [{name: v}]": False,
    "containers: [{name: a, image: b, env: [{name: c, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 3}}}]}]": False,
    "containers: [{name: a, image: b, env: [{name: c, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1M}}}]}]": True,
    "containers: [{name: a, image: b}, {name: a, image: b}]": False,
    "containers: []": False,
    "initContainers: [{name: c, image: b, livenessProbe: {exec: {command: [d]}}}]": False,
    "terminationGracePeriodSeconds: 5, containers: [{name: a, image: b, lifecycle: {preStop: {sleep: {seconds: 6}}}}]": False,
    # --- how YAML writes a value
    "terminationGracePeriodSeconds: 010": True,
    "terminationGracePeriodSeconds: 0o10": True,
    "terminationGracePeriodSeconds: 0x10": True,
    "terminationGracePeriodSeconds: 1_0": True,
    "terminationGracePeriodSeconds: 10.0": True,
    "terminationGracePeriodSeconds: 1e1": True,
    "terminationGracePeriodSeconds: 10.5": False,
    "terminationGracePeriodSeconds: '10'": False,
    "terminationGracePeriodSeconds: ~": True,
    "terminationGracePeriodSeconds: 1e20": False,
    "hostNetwork: yes": True,
    "hostNetwork: On": True,
    "hostNetwork: y": True,
    "hostname: n": False,
    "hostNetwork: 'yes'": False,
    "hostNetwork: 1": False,
    "hostname: 010": False,
    "hostname: yes": False,
    "hostname: 1.0": False,
    "overhead: {cpu: 010}": True,
    "overhead: {cpu: 1.0}": True,
    "overhead: {cpu: .5}": True,
    "overhead: {cpu: ' 1 '}": True,
    "nodeSelector: {a: }": True,
    "nodeSelector: {1: b}": True,
    "nodeSelector: {y: b}": True,
    "nodeSelector: {a: y}": False,
    "nodeSelector: {a: 1.0}": False,
}
"""Parts of a spec, and whether a kubelet takes a pod with them."""

OF_THIS_NODE: Final = (
    "secretName: a, items",
    "configMap",
    "claimName",
    "secretRef",
    "{secret: ",
    "imagePullSecrets",
)
"""References that we take and a kubelet refuses: to config maps, secrets and claims, which may be of this node."""


def refusal(manifest: bytes) -> str:
    """Return why we refuse the manifest of a static pod; an empty text if we do not."""
    try:
        ((pod, _),) = load_manifest(manifest, "pod.yaml")
    except InvalidPod as error:
        return str(error)
    pod = set_defaults(pod)
    problems = validate_pod(pod, "pod.yaml") + refused_references(pod, "pod.yaml")
    return str(problems[0]) if problems else ""


def manifest(part: str) -> bytes:
    containers = "" if " containers:" in f" {part}" else ", containers: [{name: a, image: b}]"
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: a}}\nspec: {{{part}{containers}}}\n".encode()


def recorded() -> dict[str, set[str]]:
    """Return the refused values of each field."""
    lines = (line for line in VERDICTS.read_text().splitlines() if line and not line.startswith("#"))
    return {field: set(words.split("; ")) for field, _, words in (line.partition(": ") for line in lines)}


def test_every_field_of_a_pod_is_judged_as_a_kubelet_judges_it() -> None:
    expected, found = recorded(), defaultdict(set)
    wrong_kinds, count = [], 0
    for variant in variants():
        count += 1
        refused = refusal(variant.manifest)
        if variant.word.startswith(WRONG_KIND):
            wrong_kinds += [] if refused else [f"{variant.field} {variant.word}"]
        elif refused:
            found[variant.field].add(variant.word)
    assert wrong_kinds == []
    stricter = {field: set(words.split("; ")) for field, words in STRICTER.items()}
    for field, words in stricter.items():
        found[field] -= words
    assert {field: words for field, words in found.items() if words} == expected
    assert sum(map(len, stricter.values())) < 0.02 * count


@pytest.mark.parametrize("part", WHOLE)
def test_pods_with_several_values_are_judged_as_a_kubelet_judges_them(part: str) -> None:
    is_taken = WHOLE[part] or any(words in part for words in OF_THIS_NODE)
    assert (refusal(manifest(part)) == "") is is_taken


def test_every_field_of_our_pod_is_in_a_sample() -> None:
    assert missing_fields() == set()
