"""Runtime classes of the configuration and of the cluster."""

from __future__ import annotations

from kubeletx.apiserver.objects.runtime_classes import RuntimeClasses
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.objects import RuntimeClass


def a_class(name: str, handler: str) -> RuntimeClass:
    return RuntimeClass(metadata=ObjectMeta(name=name), handler=handler)


def test_classes_of_the_cluster_come_beside_those_of_the_configuration_which_win() -> None:
    classes = RuntimeClasses({"fast": "containerd"})
    reported: list[dict[str, str]] = []
    classes.subscribe(lambda: reported.append(dict(classes)))
    classes.replace([a_class("fast", "other"), a_class("vms", "libvirt")], [])
    assert reported == [{"fast": "containerd", "vms": "libvirt"}]
    classes.put(a_class("vms", "libvirt--q35"))
    classes.put(a_class("vms", "libvirt--q35"))
    assert reported[1:] == [{"fast": "containerd", "vms": "libvirt--q35"}]
    classes.drop(a_class("vms", ""))
    assert (dict(classes), len(classes), classes.get("vms")) == ({"fast": "containerd"}, 1, None)


def test_a_class_that_cannot_be_read_stays_as_it_was() -> None:
    classes = RuntimeClasses({})
    classes.replace([a_class("vms", "libvirt"), a_class("old", "x")], [])
    classes.replace([], [ObjectMeta(name="vms"), ObjectMeta(name="never-seen")])
    assert dict(classes) == {"vms": "libvirt"}
