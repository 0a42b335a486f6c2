from __future__ import annotations

import pytest

from kubeletx.api import InvalidPod
from kubeletx.kube.types.core import ObjectFieldSelector, ResourceFieldSelector
from kubeletx.volumes.pod_fields import (
    FieldContext,
    containers_by_name,
    field_text,
    format_map,
    quote,
    resource_text,
)
from tests.unit.volumes.volume_doubles import make_pod

CONTEXT = FieldContext(
    node_name="node-1",
    host_ips=("192.0.2.1", "2001:db8::1"),
    pod_ips=("10.0.0.9", "fd00::9"),
    allocatable={"cpu": 3920, "memory": 1_000_000_000, "ephemeral-storage": 5_000},
)
POD = make_pod(
    {
        "serviceAccountName": "builder",
        "containers": [
            {
                "name": "limited",
                "resources": {
                    "limits": {"cpu": "1500m", "memory": "100Mi"},
                    "requests": {"cpu": "250m", "memory": "50M"},
                },
            },
            {"name": "free"},
        ],
    },
    labels={"b": 'say "hi"\n', "a": "1"},
    annotations={"kubernetes.io/x": "ü"},
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "u1"),
        ("metadata.labels", 'a="1"\nb="say \\"hi\\"\\n"'),
        ("metadata.annotations", 'kubernetes.io/x="ü"'),
        ("metadata.labels['a']", "1"),
        ("metadata.labels['none']", ""),
        ("metadata.annotations['kubernetes.io/x']", "ü"),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "builder"),
        ("status.hostIP", "192.0.2.1"),
        ("status.hostIPs", "192.0.2.1,2001:db8::1"),
        ("status.podIP", "10.0.0.9"),
        ("status.podIPs", "10.0.0.9,fd00::9"),
    ],
)
def test_a_field_of_the_pod_becomes_text(path, expected):
    assert field_text(POD, ObjectFieldSelector(field_path=path), CONTEXT, field="f") == expected


def test_an_unknown_field_is_named_with_what_would_do():
    with pytest.raises(
        InvalidPod, match=r"f\.fieldPath: unsupported fieldPath: spec\.x; use one of metadata"
    ):
        field_text(POD, ObjectFieldSelector(field_path="spec.x"), CONTEXT, field="f")


@pytest.mark.parametrize(
    ("container", "resource", "divisor", "expected"),
    [
        ("limited", "limits.cpu", None, "2"),
        ("limited", "limits.cpu", "1m", "1500"),
        ("limited", "requests.cpu", "1m", "250"),
        ("limited", "requests.cpu", "0", "1"),
        ("limited", "limits.memory", None, "104857600"),
        ("limited", "limits.memory", "1Mi", "100"),
        ("limited", "requests.memory", "1Mi", "48"),
        ("free", "limits.cpu", "1m", "3920"),
        ("free", "limits.memory", None, "1000000000"),
        ("free", "limits.ephemeral-storage", None, "5000"),
        ("free", "requests.cpu", None, "0"),
        ("free", "limits.hugepages-2Mi", None, "0"),
    ],
)
def test_a_resource_is_divided_rounded_up_and_falls_back_to_the_node(container, resource, divisor, expected):
    selector = ResourceFieldSelector(container_name=container, resource=resource, divisor=divisor)
    assert (
        resource_text(POD, None, selector, CONTEXT, field="f", containers=containers_by_name(POD)) == expected
    )


def test_pod_level_limits_come_before_the_node():
    pod = make_pod({"resources": {"limits": {"cpu": "2"}}, "containers": [{"name": "c"}]})
    selector = ResourceFieldSelector(resource="limits.cpu")
    assert (
        resource_text(
            pod, pod.spec.containers[0], selector, CONTEXT, field="f", containers=containers_by_name(pod)
        )
        == "2"
    )


@pytest.mark.parametrize("resource", ["cpu", "limits.gpu", "limits", "status.cpu"])
def test_an_unknown_resource_is_refused(resource):
    selector = ResourceFieldSelector(container_name="free", resource=resource)
    with pytest.raises(InvalidPod, match="unsupported container resource"):
        resource_text(POD, None, selector, CONTEXT, field="f", containers=containers_by_name(POD))


def test_a_volume_must_name_a_container_that_exists():
    selector = ResourceFieldSelector(container_name="ghost", resource="limits.cpu")
    with pytest.raises(InvalidPod, match="container 'ghost' not found"):
        resource_text(POD, None, selector, CONTEXT, field="f", containers=containers_by_name(POD))


def test_quoting_escapes_what_go_escapes():
    assert quote('a"b\\c\n\t\x00\x7f\u2028ä') == '"a\\"b\\\\c\\n\\t\\x00\\x7f\\u2028ä"'
    assert quote("\U000e0001") == '"\\U000e0001"'


def test_an_empty_map_is_empty_text():
    assert format_map({}) == ""
