"""What may change in a pod that exists."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubeletx.kube.types.core import Pod
from kubeletx.static.update_rules import forbidden_changes


def pod(**spec: Any) -> Pod:
    container = {"name": "main", "image": "busybox"}
    return msgspec.convert({"metadata": {"name": "web"}, "spec": {"containers": [container], **spec}}, Pod)


def spread(**selector: Any) -> Pod:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", **selector}
    return pod(topologySpreadConstraints=[constraint])


def near(**selector: Any) -> Pod:
    term = {"topologyKey": "zone", **selector}
    return pod(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}})


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        (spread(), spread(labelSelector={}), "spec.topologySpreadConstraints[0].labelSelector"),
        (
            near(namespaceSelector={}),
            near(),
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespaceSelector",
        ),
        (
            near(labelSelector=None),
            near(labelSelector={}),
            "spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector",
        ),
    ],
)
def test_an_empty_selector_selects_everything_and_is_not_an_unset_one(old: Pod, new: Pod, path: str) -> None:
    assert forbidden_changes(old, new) == [path]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (pod(nodeSelector={}), pod()),
        (pod(tolerations=[]), pod()),
        (pod(affinity={}), pod()),
        (near(), near(labelSelector=None)),
        (near(namespaces=[]), near()),
    ],
)
def test_other_empty_fields_say_the_same_as_unset_ones(old: Pod, new: Pod) -> None:
    assert forbidden_changes(old, new) == []
    assert forbidden_changes(new, old) == []
