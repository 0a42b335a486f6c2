from __future__ import annotations

from typing import Any

import pytest

from kubeletx.api import (
    ImageStatus,
    InvalidPod,
    NamespaceMode,
    ProcessSecurity,
    ProfileType,
    SecurityProfile,
    UnitId,
)
from kubeletx.pods.specs.security import (
    MASKED_PATHS,
    READONLY_PATHS,
    pod_namespaces,
    process_security,
    sandbox_security,
)
from tests.unit.pods.environment_model import make_node, with_container

ROOT = ImageStatus(id="i", ref="i")


def security(
    own: dict[str, Any] | None = None, of_pod: dict[str, Any] | None = None, *, image: Any = ROOT, **node: Any
) -> ProcessSecurity:
    spec = {"securityContext": of_pod} if of_pod is not None else {}
    pod, container = with_container({"securityContext": own} if own is not None else {}, **spec)
    return process_security(pod, container, make_node(**node), image=image)


@pytest.mark.parametrize(
    ("own", "of_pod", "image", "user", "name"),
    [
        (None, None, ROOT, 0, ""),
        (None, None, None, None, ""),
        (None, None, ImageStatus(id="i", ref="i", user=7), 7, ""),
        (None, None, ImageStatus(id="i", ref="i", username="app"), None, "app"),
        (None, {"runAsUser": 5}, ImageStatus(id="i", ref="i", username="app"), 5, ""),
        ({"runAsUser": 6}, {"runAsUser": 5}, ROOT, 6, ""),
        ({"runAsUser": 0}, {"runAsUser": 5}, ROOT, 0, ""),
    ],
)
def test_the_user_is_the_containers_then_the_pods_then_the_images(own, of_pod, image, user, name):
    found = security(own, of_pod, image=image)
    assert (found.run_as_user, found.run_as_username) == (user, name)


@pytest.mark.parametrize(
    ("own", "of_pod", "image", "problem"),
    [
        ({"runAsNonRoot": True}, None, ROOT, "image will run as root"),
        (None, {"runAsNonRoot": True}, ImageStatus(id="i", ref="i", user=0), "image will run as root"),
        (
            {"runAsNonRoot": True},
            None,
            ImageStatus(id="i", ref="i", username="app"),
            r"non-numeric user \(app\)",
        ),
        ({"runAsNonRoot": True, "runAsUser": 0}, None, ROOT, "runAsUser breaks non-root policy"),
        ({"runAsNonRoot": True}, {"runAsUser": 0}, ROOT, "runAsUser breaks non-root policy"),
    ],
)
def test_a_container_that_would_run_as_root_against_its_will_is_refused(own, of_pod, image, problem):
    with pytest.raises(InvalidPod, match=problem) as caught:
        security(own, of_pod, image=image)
    assert caught.value.reason == "CreateContainerConfigError"
    assert '(pod: "web_shop(u1)", container: c)' in str(caught.value)


@pytest.mark.parametrize(
    ("own", "of_pod", "image"),
    [
        ({"runAsNonRoot": True, "runAsUser": 5}, None, ROOT),
        ({"runAsNonRoot": True}, None, ImageStatus(id="i", ref="i", user=5)),
        ({"runAsNonRoot": False}, {"runAsNonRoot": True}, ROOT),
        ({"runAsNonRoot": True}, {"runAsUser": 5}, ROOT),
    ],
)
def test_a_container_that_is_not_root_passes(own, of_pod, image):
    security(own, of_pod, image=image)


def test_groups_come_from_the_pod():
    of_pod = {
        "fsGroup": 9,
        "supplementalGroups": [1, 2],
        "supplementalGroupsPolicy": "Strict",
        "runAsGroup": 3,
        "runAsUser": 1,
    }
    found = security({"runAsGroup": 4}, of_pod)
    assert (found.run_as_group, found.supplemental_groups, found.supplemental_groups_strict) == (
        4,
        (9, 1, 2),
        True,
    )


def test_rights_are_passed_on():
    own = {
        "privileged": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
        "seLinuxOptions": {"level": "s0:c1"},
    }
    found = security(own)
    assert (found.privileged, found.readonly_rootfs, found.no_new_privs) == (True, True, True)
    assert (found.capabilities.add, found.capabilities.drop) == (("NET_ADMIN",), ("ALL",))
    assert found.selinux is not None
    assert found.selinux.level == "s0:c1"


@pytest.mark.parametrize(("value", "expected"), [(None, False), (True, False), (False, True)])
def test_only_an_explicit_no_forbids_new_privileges(value, expected):
    assert security({"allowPrivilegeEscalation": value}).no_new_privs is expected


def test_proc_is_masked_unless_it_is_asked_for():
    masked = security()
    assert (masked.masked_paths, masked.readonly_paths) == (MASKED_PATHS, READONLY_PATHS)
    unmasked = security({"procMount": "Unmasked"})
    assert (unmasked.masked_paths, unmasked.readonly_paths) == ((), ())


LOCAL = SecurityProfile(type=ProfileType.LOCALHOST, localhost_ref="/root-dir/seccomp/p.json")
DEFAULT = SecurityProfile(type=ProfileType.RUNTIME_DEFAULT)
UNCONFINED = SecurityProfile(type=ProfileType.UNCONFINED)


@pytest.mark.parametrize(
    ("own", "of_pod", "node", "expected"),
    [
        (None, None, {}, UNCONFINED),
        (None, None, {"seccomp_default": True}, DEFAULT),
        (None, {"seccompProfile": {"type": "RuntimeDefault"}}, {}, DEFAULT),
        (
            {"seccompProfile": {"type": "Unconfined"}},
            {"seccompProfile": {"type": "RuntimeDefault"}},
            {},
            UNCONFINED,
        ),
        ({"seccompProfile": {"type": "Localhost", "localhostProfile": "p.json"}}, None, {}, LOCAL),
    ],
)
def test_seccomp_is_the_containers_then_the_pods_then_the_nodes(own, of_pod, node, expected):
    assert security(own, of_pod, **node).seccomp == expected


@pytest.mark.parametrize(
    "profile",
    [
        {"type": "Localhost"},
        {"type": "Localhost", "localhostProfile": "../x"},
        {"type": "Localhost", "localhostProfile": "/x"},
        {"type": "Nonsense"},
    ],
)
def test_a_seccomp_profile_that_cannot_be_is_refused(profile):
    with pytest.raises(InvalidPod, match="seccompProfile"):
        security({"seccompProfile": profile})


@pytest.mark.parametrize(
    ("own", "annotation", "expected"),
    [
        ({}, None, None),
        ({"appArmorProfile": {"type": "RuntimeDefault"}}, None, DEFAULT),
        (
            {"appArmorProfile": {"type": "Localhost", "localhostProfile": "p"}},
            "unconfined",
            SecurityProfile(type=ProfileType.LOCALHOST, localhost_ref="p"),
        ),
        ({}, "runtime/default", DEFAULT),
        ({}, "unconfined", UNCONFINED),
        ({}, "localhost/p", SecurityProfile(type=ProfileType.LOCALHOST, localhost_ref="p")),
    ],
)
def test_apparmor_is_the_field_or_the_old_annotation(own, annotation, expected):
    from tests.unit.pods.environment_model import make_pod

    key = "container.apparmor.security.beta.kubernetes.io/c"
    pod = make_pod(
        {"containers": [{"name": "c", "securityContext": own}]},
        annotations={key: annotation} if annotation else {},
    )
    assert process_security(pod, pod.spec.containers[0], make_node(), image=ROOT).apparmor == expected


@pytest.mark.parametrize(
    ("spec", "pid"),
    [
        ({}, NamespaceMode.CONTAINER),
        ({"shareProcessNamespace": True}, NamespaceMode.POD),
        ({"hostPID": True}, NamespaceMode.NODE),
    ],
)
def test_process_namespaces_follow_the_pod(spec, pid):
    pod, _ = with_container({}, **spec)
    assert pod_namespaces(pod).pid is pid


def test_the_nodes_namespaces_are_joined_where_asked():
    pod, _ = with_container({}, hostNetwork=True, hostIPC=True)
    found = pod_namespaces(pod, target_unit=UnitId("x"))
    assert (found.network, found.ipc, found.pid) == (
        NamespaceMode.NODE,
        NamespaceMode.NODE,
        NamespaceMode.TARGET,
    )


def test_a_sandbox_has_the_default_seccomp_profile_and_the_pods_user():
    pod, _ = with_container(
        {"securityContext": {"privileged": True}},
        securityContext={"runAsUser": 5, "runAsGroup": 6, "seccompProfile": {"type": "Unconfined"}},
    )
    found = sandbox_security(pod)
    assert (found.seccomp, found.run_as_user, found.run_as_group, found.privileged) == (DEFAULT, 5, 6, True)
