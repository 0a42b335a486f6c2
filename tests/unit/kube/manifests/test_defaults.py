from __future__ import annotations

import pytest

from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.manifests.volume_defaults import pull_policy
from kubeletx.kube.types.core import (
    Container,
    ObjectMeta,
    Pod,
    PodSecurityContext,
    PodSpec,
    ResourceRequirements,
)
from kubeletx.kube.validation import validate_pod
from tests.unit.kube.pod_text import full_pod, raw_pod


def test_a_pod_gets_the_api_servers_defaults() -> None:
    pod = full_pod()
    spec = pod.spec
    assert pod.namespace == "default"
    assert (spec.restart_policy, spec.dns_policy, spec.termination_grace_period_seconds) == (
        "Always",
        "ClusterFirst",
        30,
    )
    assert (spec.enable_service_links, spec.scheduler_name) == (True, "default-scheduler")
    assert spec.security_context == PodSecurityContext()
    (container,) = spec.containers
    assert container.termination_message_path == "/dev/termination-log"
    assert container.termination_message_policy == "File"
    assert container.image_pull_policy == "IfNotPresent"


def test_a_negative_grace_period_is_one_second() -> None:
    assert full_pod("terminationGracePeriodSeconds: -1").spec.termination_grace_period_seconds == 1


def test_what_is_set_is_kept() -> None:
    pod = full_pod(
        "restartPolicy: Never, dnsPolicy: Default, terminationGracePeriodSeconds: 0, enableServiceLinks: false",
        container="imagePullPolicy: Never, terminationMessagePath: /x, terminationMessagePolicy: FallbackToLogsOnError",
        metadata="namespace: shop",
    )
    assert pod.namespace == "shop"
    assert pod.spec.termination_grace_period_seconds == 0
    assert pod.spec.enable_service_links is False
    assert pod.spec.containers[0].image_pull_policy == "Never"
    assert pod.spec.containers[0].termination_message_path == "/x"


@pytest.mark.parametrize(
    "pod",
    [
        raw_pod(),
        raw_pod(
            "volumes: [{name: a}, {name: b, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]"
        ),
        raw_pod("virtualMachine: {name: vm, image: i}, nics: [{}, {name: eth1}]"),
        raw_pod(
            "hostNetwork: true",
            container="ports: [{containerPort: 80}], livenessProbe: {httpGet: {port: 80}}",
        ),
    ],
)
def test_setting_defaults_twice_changes_nothing(pod: object) -> None:
    once = set_defaults(pod)  # type: ignore[arg-type]
    assert set_defaults(once) == once


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("app", "Always"),
        ("app:latest", "Always"),
        ("app:1", "IfNotPresent"),
        ("localhost:5000/app", "Always"),
        ("localhost:5000/app:1", "IfNotPresent"),
        ("app@sha256:" + "0" * 64, "IfNotPresent"),
        ("app:latest@sha256:" + "0" * 64, "Always"),
        ("oci:r.io/disk:1", "IfNotPresent"),
        ("https://h.example/disk.qcow2", "Always"),
        ("", "Always"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


def test_requests_follow_limits() -> None:
    pod = full_pod(container="resources: {limits: {cpu: 1, memory: 1Gi}, requests: {cpu: 100m}}")
    assert pod.spec.containers[0].resources.requests == {"cpu": "100m", "memory": "1Gi"}
    assert full_pod("resources: {limits: {cpu: 2}}").spec.resources.requests == {"cpu": "2"}


def test_ports_have_a_protocol_and_are_the_nodes_in_its_network() -> None:
    (port,) = full_pod(container="ports: [{containerPort: 80}]").spec.containers[0].ports
    assert (port.protocol, port.host_port) == ("TCP", None)
    (port,) = full_pod("hostNetwork: true", container="ports: [{containerPort: 80}]").spec.containers[0].ports
    assert port.host_port == 80


def test_probes_and_hooks_get_their_defaults() -> None:
    container = full_pod(
        container="readinessProbe: {httpGet: {port: 80}}, startupProbe: {exec: {command: [x]}, periodSeconds: 2}, "
        "lifecycle: {preStop: {httpGet: {port: 80, path: /bye}}, postStart: {exec: {command: [x]}}}"
    ).spec.containers[0]
    probe = container.readiness_probe
    assert probe is not None
    assert (
        probe.timeout_seconds,
        probe.period_seconds,
        probe.success_threshold,
        probe.failure_threshold,
    ) == (1, 10, 1, 3)
    assert probe.initial_delay_seconds is None
    assert probe.http_get is not None
    assert (probe.http_get.path, probe.http_get.scheme) == ("/", "HTTP")
    assert container.startup_probe is not None
    assert container.startup_probe.period_seconds == 2
    assert container.lifecycle is not None
    assert container.lifecycle.pre_stop is not None
    assert container.lifecycle.pre_stop.http_get is not None
    assert (container.lifecycle.pre_stop.http_get.path, container.lifecycle.pre_stop.http_get.scheme) == (
        "/bye",
        "HTTP",
    )


def test_volumes_get_their_modes_and_an_empty_one_is_an_empty_dir() -> None:
    empty, config, secret, down, projected, token, image = full_pod(
        "volumes: [{name: a}, {name: b, configMap: {name: x}}, {name: c, secret: {secretName: x, defaultMode: 0}}, "
        "{name: d, downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}, "
        "{name: e, projected: {sources: [{downwardAPI: {items: [{path: p, fieldRef: {fieldPath: metadata.name}}]}}]}}, "
        "{name: f, projected: {sources: [{serviceAccountToken: {path: t}}]}}, {name: g, image: {reference: app}}]"
    ).spec.volumes
    assert empty.empty_dir is not None
    assert config.config_map is not None
    assert config.config_map.default_mode == 0o644
    assert secret.secret is not None
    assert secret.secret.default_mode == 0
    assert down.downward_api is not None
    assert down.downward_api.items[0].field_ref is not None
    assert down.downward_api.items[0].field_ref.api_version == "v1"
    assert projected.projected is not None
    assert projected.projected.default_mode == 0o644
    assert projected.projected.sources[0].downward_api is not None
    assert projected.projected.sources[0].downward_api.items[0].field_ref is not None
    assert token.projected is not None
    assert token.projected.sources[0].service_account_token is not None
    assert token.projected.sources[0].service_account_token.expiration_seconds == 3600
    assert image.image is not None
    assert image.image.pull_policy == "Always"


def test_a_machine_gets_the_designs_defaults() -> None:
    spec = full_pod(
        "virtualMachine: {name: vm, image: i, resources: {limits: {cpu: 1}}}, nics: [{}, {name: net}, {}]"
    ).spec
    machine = spec.virtual_machine
    assert machine is not None
    assert (machine.image_pull_policy, machine.shutdown_behavior, machine.power_spec) == (
        "IfNotPresent",
        "stop",
        "Running",
    )
    assert machine.resources.requests == {"cpu": "1"}
    assert [nic.name for nic in spec.nics] == ["eth0", "net", "eth2"]
    assert spec.containers == ()


def test_an_amount_that_is_none_is_left_to_validation() -> None:
    bad = Container(name="c", image="i", resources=ResourceRequirements(requests={"cpu": "much"}))
    whole = ResourceRequirements(limits={"cpu": "1"})
    pod = set_defaults(Pod(metadata=ObjectMeta(name="p"), spec=PodSpec(containers=(bad,), resources=whole)))
    assert [problem.field for problem in validate_pod(pod, "x")] == [
        "spec.containers[0].resources.requests[cpu]"
    ]
