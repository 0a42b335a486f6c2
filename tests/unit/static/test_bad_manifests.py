"""Each manifest of `bad_manifests/` is refused with one clear line: file, field, found value, fix."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubeletx.api import InvalidPod
from kubeletx.static.file import FileSource
from kubeletx.static.manifest import InvalidManifest, ManifestReader
from kubeletx.testing.clock import FakeClock
from tests.unit.static.recording_sink import RecordingSink

CORPUS = Path(__file__).parent / "bad_manifests"
READER = ManifestReader(node_name="node1", workload_types=frozenset({"container", "vm"}), with_objects=True)
GOOD = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: 'app:1'}]}\n"

EXPECTED = {
    "claim-of-a-class.yaml": "claim-of-a-class.yaml (persistentvolumeclaim data): spec.storageClassName: 'fast' has no provisioner on this node; leave it out for a directory of this node, or write kubeletx.io/storage for the storage agent",
    "config-key-with-path.yaml": "config-key-with-path.yaml (configmap web): data[../passwd]: '../passwd' may not be '.' or start with '..'; rename the key",
    "deployment-of-two.yaml": "deployment-of-two.yaml (deployment web): spec.replicas: 2 is not one pod, which is what a node without a cluster runs; run one (replicas: 1), which is pod web, or write each Pod by itself",
    "duplicate-object.yaml": "duplicate-object.yaml (configmap web): metadata.name: 'default/web' is in this manifest twice; rename one of the objects",
    "secret-is-a-number.yaml": "secret-is-a-number.yaml (secret login): stringData[pin]: is not a string; put the value in quotes",
    "secret-not-base64.yaml": "secret-not-base64.yaml (secret login): data[password]: is not base64; encode it with base64",
    "several-kinds.yaml": "several-kinds.yaml: kind: 'Service' is not run by a node; write a Pod, a ConfigMap, Secret or PersistentVolumeClaim for it, or a Deployment, ReplicaSet, StatefulSet, DaemonSet or Job of one pod",
    "bad-quantity.yaml": "bad-quantity.yaml (pod web): spec.containers[0].resources.limits[memory]: '64MB' is not a quantity; write a number with a suffix such as 500m, 64Mi or 1G",
    "bad-runtime-name.yaml": "bad-runtime-name.yaml (pod web): spec.runtimeServiceName: 'Libvirt--QEMU' holds '--', which no runtime name does; correct it",
    "broken-yaml.yaml": "broken-yaml.yaml: line 7: is not YAML: did not find expected node content; correct the YAML",
    "broken.json": "broken.json: line 1: is not JSON: Expecting property name enclosed in double quotes at column 36; correct it",
    "container-name-with-path.yaml": "container-name-with-path.yaml (pod web): spec.containers[0].name: '../main' is not a DNS label (lower-case letters, digits and '-'); correct it",
    "containers-is-a-mapping.yaml": "containers-is-a-mapping.yaml (pod web): spec.containers: a mapping is not a list; start each entry with '- '",
    "duplicate-container.yaml": "duplicate-container.yaml (pod web): spec.containers[1].name: 'main' is already the name of another container; choose another name",
    "duplicate-key.json": "duplicate-key.json: has the key 'kind' twice; correct the JSON",
    "duplicate-key.yaml": "duplicate-key.yaml: line 9: has the key 'image' twice; remove one of them",
    "duplicate-pod.yaml": "duplicate-pod.yaml (pod web): metadata.name: 'default/web' is in this manifest twice; rename one of the pods",
    "empty.yaml": "empty.yaml: holds no pod; write a v1 Pod",
    "env-is-a-bool.yaml": "env-is-a-bool.yaml (pod web): spec.containers[0].env[0].value: true is not a string; put the value in quotes",
    "flag-is-a-string.yaml": "flag-is-a-string.yaml (pod web): spec.hostNetwork: 'true' is not true or false; write true or false without quotes",
    "flex-driver-with-dots.yaml": "flex-driver-with-dots.yaml (pod web): spec.volumes[0].flexVolume.driver: '../disk' is not a driver name; write VENDOR/DRIVER",
    "flex-option-is-a-number.yaml": "flex-option-is-a-number.yaml (pod web): spec.volumes[0].flexVolume.options[size]: 1 is not a string; put the value in quotes",
    "flex-option-reserved.yaml": "flex-option-reserved.yaml (pod web): spec.volumes[0].flexVolume.options[Storage.K8s.io/image]: is in a namespace of Kubernetes, which is reserved; use a key without '/', or another namespace",
    "flex-volume-is-a-list.yaml": "flex-volume-is-a-list.yaml (pod web): spec.volumes[0].flexVolume: a list is not a mapping; write key: value pairs",
    "host-path-with-dots.yaml": "host-path-with-dots.yaml (pod web): spec.volumes[0].hostPath.path: '/var/../etc' may not hold '..'; correct it",
    "label-is-a-number.yaml": "label-is-a-number.yaml (pod web): metadata.labels[version]: 1.1 is not a string; put the value in quotes",
    "machine-and-container.yaml": "machine-and-container.yaml (pod web): spec.containers: is set together with virtualMachine; keep one of them",
    "name-missing.yaml": "name-missing.yaml: metadata.name: is missing; set it",
    "name-with-path.yaml": "name-with-path.yaml (pod ../../etc/passwd): metadata.name: '../../etc/passwd' is not a DNS name (lower-case letters, digits, '-' and '.'); correct it",
    "namespace-with-path.yaml": "namespace-with-path.yaml (pod web): metadata.namespace: 'a/../b' is not a DNS label (lower-case letters, digits and '-'); correct it",
    "negative-quantity.yaml": "negative-quantity.yaml (pod web): spec.containers[0].resources.requests[cpu]: '-1' is negative; use 0 or more",
    "nested-too-deep.yaml": "nested-too-deep.yaml: line 1: is nested deeper than 100 levels; flatten it",
    "no-container.yaml": "no-container.yaml (pod web): spec.containers: is missing; name at least one container or a virtualMachine",
    "no-image.yaml": "no-image.yaml (pod web): spec.containers[0].image: is missing; name an image",
    "no-kind.json": "no-kind.json: kind: is missing; write kind: Pod",
    "not-a-mapping.yaml": "not-a-mapping.yaml: 'just some text' is not a mapping; write a v1 Pod",
    "not-utf8.yaml": "not-utf8.yaml: byte 49: b'\\xff' is not UTF-8; save the file as UTF-8",
    "null-container.yaml": "null-container.yaml (pod web): spec.containers[0].name: is missing; set it (and 1 more problem)",
    "number-too-large.yaml": "number-too-large.yaml (pod web): spec.terminationGracePeriodSeconds: '99999999999999999999' is too large; write a smaller number",
    "port-is-a-word.yaml": "port-is-a-word.yaml (pod web): spec.containers[0].ports[0].containerPort: 'http' is not an integer; write a whole number without quotes",
    "python-tag.yaml": "python-tag.yaml: line 5: has the tag 'tag:yaml.org,2002:python/object/apply:os.system'; remove the tag",
    "recursive-alias.yaml": "recursive-alias.yaml: line 2: uses the alias *a, which no finished value above it defines; correct the YAML",
    "request-above-limit.yaml": "request-above-limit.yaml (pod web): spec.containers[0].resources.requests[memory]: '1Gi' is above the limit; lower the request or raise the limit '64Mi'",
    "service-account.yaml": "service-account.yaml (pod web): spec.serviceAccountName: refers to the service account 'builder'; a static pod has no API server to ask: use a file of the node (hostPath) or a literal value",
    "several-problems.yaml": "several-problems.yaml (pod Web): metadata.name: 'Web' is not a DNS name (lower-case letters, digits, '-' and '.'); correct it (and 2 more problems)",
    "sub-path-with-dots.yaml": "sub-path-with-dots.yaml (pod web): spec.containers[0].volumeMounts[0].subPath: '../../etc' may not hold '..'; correct it",
    "tab-indent.yaml": "tab-indent.yaml: line 6: is not YAML: found character that cannot start any token; indent with spaces, not tabs",
    "two-handlers.yaml": "two-handlers.yaml (pod web): spec.containers[0].livenessProbe: has exec and tcpSocket; keep exactly one handler",
    "two-sources.yaml": "two-sources.yaml (pod web): spec.volumes[0]: has hostPath and emptyDir; keep exactly one source",
    "unknown-mount.yaml": "unknown-mount.yaml (pod web): spec.containers[0].volumeMounts[0].name: 'date' is not a volume of this pod; use one of spec.volumes (data)",
    "unknown-standby.yaml": "unknown-standby.yaml (pod web): metadata.annotations[kubeletx.io/standby]: 'asleep' is not known; use standby or hibernated",
    "unknown-workload-type.yaml": "unknown-workload-type.yaml (pod web): metadata.annotations[kubeletx.io/workload-type]: 'unikernel' is not a workload type of this node; use container or vm",
    "user-data-not-base64.yaml": "user-data-not-base64.yaml (pod web): spec.virtualMachine.userData: '#cloud-config' is not base64; encode it with base64, once",
    "volume-name-with-path.yaml": "volume-name-with-path.yaml (pod web): spec.volumes[0].name: '../data' is not a DNS label (lower-case letters, digits and '-'); correct it",
    "wrong-version.yaml": "wrong-version.yaml: apiVersion: 'v1beta1' is not a version of Pod; write apiVersion: v1",
    "yaml-bomb.yaml": "yaml-bomb.yaml: line 5: repeats more than 10000 values through aliases; write the values out instead of using aliases",
}


def read(path: Path) -> InvalidPod:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    with pytest.raises(InvalidPod) as caught:
        READER.read(path.read_bytes(), origin=path.name, source="file", seen_at=now)
    return caught.value


@pytest.mark.parametrize("name", EXPECTED)
def test_a_bad_manifest_gets_one_clear_line(name: str) -> None:
    assert str(read(CORPUS / name)) == EXPECTED[name]


def test_every_bad_manifest_has_an_expected_line() -> None:
    assert sorted(path.name for path in CORPUS.iterdir()) == sorted(EXPECTED)


def test_all_problems_of_a_manifest_are_known() -> None:
    error = read(CORPUS / "several-problems.yaml")
    assert isinstance(error, InvalidManifest)
    assert [problem.field for problem in error.problems] == [
        "metadata.name",
        "spec.restartPolicy",
        "spec.containers[0].image",
    ]


def test_a_manifest_of_eleven_megabytes_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    path.write_bytes(b"#" * 11_000_000)
    assert str(read(path)) == (
        "huge.yaml: has 11000000 bytes, more than the 10485760 that a manifest may have; "
        "split it into several files"
    )


async def test_bad_manifests_leave_other_pods_alone_and_fixing_the_file_is_enough(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(GOOD % "good")
    sink = RecordingSink()
    source = FileSource(path=tmp_path, sink=sink, reader=READER, clock=FakeClock())
    task = asyncio.create_task(source.run(), name="file-source")
    await sink.wait(lambda: sink.is_synced)
    for name in EXPECTED:
        (tmp_path / name).write_bytes((CORPUS / name).read_bytes())
    (tmp_path / "huge.yaml").write_bytes(b"#" * 11_000_000)
    await sink.wait(lambda: len(sink.errors) == len(EXPECTED) + 1)
    assert sink.names == ["good-node1"]
    assert all(text.startswith(f"{origin}") for origin, (text, _) in sink.errors.items())
    assert all("\n" not in text for text, _ in sink.errors.values())
    for number, name in enumerate((*EXPECTED, "huge.yaml")):
        (tmp_path / name).write_text(GOOD % f"fixed-{number}")
    await sink.wait(lambda: not sink.errors)
    assert len(sink.pods) == len(EXPECTED) + 2
    assert sink.calls.count("update good-node1") == 1
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
