"""What a server says about itself, old and new."""

from __future__ import annotations

import pytest

from kubeletx.api import RuntimeVersion
from kubeletx.cri.backend import cgroup_parent, health_from_cri, read_backend, traits_of
from kubeletx.cri.stubs import runtime_v1_pb2 as pb
from kubeletx_testing.cri_model import VERBOSE_CONFIG

OLD = RuntimeVersion(name="containerd", version="1.6.20~ds1")
NEW = RuntimeVersion(name="containerd", version="2.3.0")

OLD_STATUS = pb.StatusResponse(info={"config": VERBOSE_CONFIG})
NEW_STATUS = pb.StatusResponse(
    runtime_handlers=[
        pb.RuntimeHandler(
            name="", features=pb.RuntimeHandlerFeatures(recursive_read_only_mounts=True, user_namespaces=True)
        ),
        pb.RuntimeHandler(
            name="runc",
            features=pb.RuntimeHandlerFeatures(recursive_read_only_mounts=True, user_namespaces=True),
        ),
        pb.RuntimeHandler(name="kata", features=pb.RuntimeHandlerFeatures()),
    ],
    features=pb.RuntimeFeatures(supplemental_groups_policy=True),
)


def test_an_old_containerd_reports_its_handlers_in_its_configuration() -> None:
    assert read_backend(OLD, OLD_STATUS, None, "").handlers == ("crun", "runc")


def test_the_runtime_types_of_handlers_are_those_of_containerds_configuration() -> None:
    runc = "io.containerd.runc.v2"
    assert read_backend(OLD, OLD_STATUS, None, "").handler_types == {"": runc, "crun": runc, "runc": runc}
    for text in ('{"containerd": {"runtimes": {"a": null, "b": {"runtimeType": 1}}}}', "no json"):
        status = pb.StatusResponse(info={"config": text})
        assert read_backend(OLD, status, None, "").handler_types == {}


def test_a_new_server_reports_its_handlers_itself() -> None:
    assert read_backend(NEW, NEW_STATUS, None, "").handlers == ("kata", "runc")


def test_a_server_that_reports_nothing_has_no_known_handlers_and_no_known_driver() -> None:
    for info in ({}, {"config": "no json"}, {"config": "[]"}, {"config": '{"containerd": null}'}):
        backend = read_backend(OLD, pb.StatusResponse(info=info), None, "")
        assert backend.handlers == ()
        assert backend.cgroup_driver == ""


@pytest.mark.parametrize(
    ("config", "handler", "driver"),
    [
        (VERBOSE_CONFIG, "", "cgroupfs"),
        (VERBOSE_CONFIG.replace('"SystemdCgroup": false', '"SystemdCgroup": true'), "", "systemd"),
        (VERBOSE_CONFIG.replace('"SystemdCgroup": false', '"SystemdCgroup": true'), "crun", "cgroupfs"),
        (VERBOSE_CONFIG.replace('"systemdCgroup": false', '"systemdCgroup": true'), "crun", "systemd"),
    ],
)
def test_the_cgroup_driver_is_read_from_the_configuration_of_old_servers(
    config: str, handler: str, driver: str
) -> None:
    status = pb.StatusResponse(info={"config": config})
    assert read_backend(OLD, status, None, handler).cgroup_driver == driver


def test_the_cgroup_driver_a_new_server_answers_with_counts() -> None:
    answer = pb.RuntimeConfigResponse(linux=pb.LinuxRuntimeConfiguration(cgroup_driver=pb.SYSTEMD))
    assert read_backend(NEW, OLD_STATUS, answer, "").cgroup_driver == "systemd"
    answer.linux.cgroup_driver = pb.CGROUPFS
    assert read_backend(NEW, OLD_STATUS, answer, "").cgroup_driver == "cgroupfs"


@pytest.mark.parametrize(
    ("version", "status", "handler", "refuses"),
    [
        (
            OLD,
            OLD_STATUS,
            "",
            {"user-namespace", "recursive-read-only", "image-volumes", "stop-signal", "strict-groups"},
        ),
        (NEW, NEW_STATUS, "", set()),
        (NEW, NEW_STATUS, "runc", set()),
        (RuntimeVersion(name="containerd", version="v2.2.1"), NEW_STATUS, "", {"stop-signal"}),
        (NEW, NEW_STATUS, "kata", {"user-namespace", "recursive-read-only"}),
        (RuntimeVersion(name="cri-o", version="1.30.1"), NEW_STATUS, "", {"image-volumes"}),
        (RuntimeVersion(name="cri-o", version="1.31.0"), NEW_STATUS, "", set()),
        (RuntimeVersion(name="containerd", version="development"), NEW_STATUS, "", set()),
    ],
)
def test_what_a_server_would_ignore_in_silence_is_refused(
    version: RuntimeVersion, status: pb.StatusResponse, handler: str, refuses: set[str]
) -> None:
    traits = traits_of(read_backend(version, status, None, handler), remote=False)
    assert set(traits.refuses) == refuses


def test_a_handler_has_refusals_of_its_own() -> None:
    traits = traits_of(read_backend(NEW, NEW_STATUS, None, ""), remote=False)
    assert traits.refuses == traits.handler_refuses["runc"] == ()
    assert set(traits.handler_refuses["kata"]) == {"recursive-read-only", "user-namespace"}


def conditions(**ready: bool) -> pb.StatusResponse:
    return pb.StatusResponse(
        status=pb.RuntimeStatus(
            conditions=[pb.RuntimeCondition(type=kind, status=ok) for kind, ok in ready.items()]
        )
    )


def test_health_takes_the_two_conditions_that_every_server_reports() -> None:
    health = health_from_cri(conditions(RuntimeReady=True, NetworkReady=False), ("runc",), "")
    assert (health.runtime_ready, health.network_ready) == (True, False)
    assert "NetworkReady" in health.message
    assert "/etc/cni/net.d" in health.message
    assert "install.md" in health.message
    named = health_from_cri(conditions(RuntimeReady=True, NetworkReady=False), (), "", "/run/cni")
    assert "/run/cni, see" in named.message
    assert health.handlers == ("runc",)


def test_a_missing_condition_is_not_met() -> None:
    health = health_from_cri(conditions(), (), "")
    assert (health.runtime_ready, health.network_ready) == (False, False)


def test_an_endpoint_whose_handler_is_not_configured_is_not_ready_and_says_so() -> None:
    answer = conditions(RuntimeReady=True, NetworkReady=True)
    health = health_from_cri(answer, ("runc",), "kata")
    assert not health.runtime_ready
    assert "kata" in health.message
    assert "runc" in health.message
    assert health_from_cri(answer, ("kata", "runc"), "kata").runtime_ready
    assert health_from_cri(answer, (), "kata").runtime_ready, "a server that does not tell is believed"


@pytest.mark.parametrize(
    ("path", "driver", "parent"),
    [
        ("/kubepods/burstable/pod1-2", "cgroupfs", "/kubepods/burstable/pod1-2"),
        ("/kubepods/burstable/pod1-2", "systemd", "kubepods-burstable-pod1_2.slice"),
        ("/kubepods.slice", "systemd", "/kubepods.slice"),
        ("", "systemd", ""),
        ("/", "systemd", "/"),
        ("/kubepods/pod1", "", "/kubepods/pod1"),
    ],
)
def test_the_pod_s_cgroup_is_given_as_the_driver_takes_it(path: str, driver: str, parent: str) -> None:
    assert cgroup_parent(path, driver) == parent


def test_the_sandbox_image_is_known_from_the_servers_own_settings() -> None:
    status = pb.StatusResponse(info={"config": '{"sandboxImage": "registry.local/pause:1"}'})
    version = RuntimeVersion(name="containerd", version="1.6.20")
    assert read_backend(version, status, None, "").sandbox_image == "registry.local/pause:1"
