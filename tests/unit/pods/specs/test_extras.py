from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import InvalidPod, Mount, Process, RuntimeName, Traits, Unavailable, UnitSpec, names
from kubeletx.kube.manifests.machine_form import machine_of
from kubeletx.kube.types.core import Container, Pod, VirtualMachine
from kubeletx.pods.model.roles import UnitRole
from kubeletx.pods.specs.extras import ExtrasError, ExtrasProvider, UnitExtras, gather_extras
from kubeletx.pods.specs.inputs import UnitInputs
from kubeletx.pods.specs.unit import compose_unit
from kubeletx.volumes import PreparedVolumes, VolumePreparer
from tests.unit.pods.environment_model import inline, make_node, make_pod, with_container

SOCKET = Mount(source="/var/lib/sessions/u1", target="/run/session", read_only=True)


def giving(**fields: Any) -> ExtrasProvider:
    """A provider that gives the same to every unit."""

    async def provide(_pod: Pod, _container: Container | VirtualMachine) -> UnitExtras:
        return UnitExtras(**fields)

    return provide


async def composed(
    root: Path,
    providers: dict[str, ExtrasProvider],
    container: dict[str, Any] | None = None,
    *,
    metadata: dict[str, Any] | None = None,
    name: str = "c",
    traits: Traits | None = None,
    **spec: Any,
) -> UnitSpec:
    pod = make_pod(
        {"containers": [{"name": "c", "image": "app", **(container or {})}], **spec}, **(metadata or {})
    )
    units = [*pod.spec.containers, *pod.spec.init_containers]
    found: Container | VirtualMachine | None = next((one for one in units if one.name == name), None)
    found = found or machine_of(pod, on_vm_runtime=True)
    assert found is not None
    node = make_node(root_dir=root)
    preparer = VolumePreparer(root_dir=root, blocking=inline, fields=node.fields())
    inputs = UnitInputs(
        pod=pod,
        container=found,
        node=node,
        attempt=0,
        runtime_name=RuntimeName("ctr-a"),
        traits=traits,
        services={"SERVICE": "of a service"},
        extras=await gather_extras(providers, pod, found),
    )
    return await compose_unit(inputs, preparer, PreparedVolumes(uid=pod.uid))


def variables(spec: UnitSpec) -> dict[str, str]:
    return {one.name: one.value for one in spec.environment}


async def test_a_unit_gets_mounts_variables_and_annotations_of_all_providers_by_name(tmp_path: Path) -> None:
    other = Mount(source="/etc/other", target="/etc/other")
    spec = await composed(
        tmp_path,
        {
            "web": giving(mounts=(other,), variables={"WEB": "2"}, annotations={"web.example/a": "2"}),
            "sessions": giving(
                mounts=(SOCKET,), variables={"SESSION": "1"}, annotations={"s.example/a": "1"}
            ),
        },
    )
    assert spec.mounts[-2:] == (SOCKET, other)
    assert list(variables(spec).items()) == [("SESSION", "1"), ("WEB", "2"), ("SERVICE", "of a service")]
    assert spec.annotations["s.example/a"] == "1"
    assert spec.annotations["web.example/a"] == "2"
    assert spec.annotations[names.CONTAINER_RESTART_COUNT] == "0"


async def test_services_and_the_pod_win_over_variables_of_extras(tmp_path: Path) -> None:
    given = {"SERVICE": "extra", "OWN": "extra", "SESSION": "s1"}
    container = {
        "env": [{"name": "OWN", "value": "mine"}, {"name": "AT", "value": "$(SESSION)/$(NONE)"}],
        "command": ["run", "$(SESSION)"],
    }
    spec = await composed(tmp_path, {"sessions": giving(variables=given)}, container)
    assert variables(spec) == {
        "SERVICE": "of a service",
        "OWN": "mine",
        "SESSION": "s1",
        "AT": "s1/$(NONE)",
    }
    assert isinstance(spec.detail, Process)
    assert spec.detail.command == ("run", "s1")


@pytest.mark.parametrize(
    ("container", "target"),
    [
        ({"volumeMounts": [{"name": "v", "mountPath": "/run/session/"}]}, "/run/session"),
        ({}, "/dev/termination-log"),
        ({}, "/etc//hosts"),
    ],
)
async def test_a_path_that_the_container_mounts_is_refused(
    tmp_path: Path, container: dict[str, Any], target: str
) -> None:
    source = tmp_path / "v"
    source.mkdir()
    pod, made = with_container(container, volumes=[{"name": "v", "hostPath": {"path": str(source)}}])
    node = make_node(root_dir=tmp_path)
    preparer = VolumePreparer(root_dir=tmp_path, blocking=inline, fields=node.fields())
    providers = {"sessions": giving(mounts=(Mount(source="/a", target=target),))}
    inputs = UnitInputs(
        pod=pod,
        container=made,
        node=node,
        attempt=0,
        runtime_name=RuntimeName("ctr-a"),
        pod_ips=("10.0.0.9",),
        extras=await gather_extras(providers, pod, made),
    )
    with pytest.raises(InvalidPod) as caught:
        await compose_unit(inputs, preparer, await preparer.prepare(pod))
    assert str(caught.value) == (
        f"spec.containers[0].volumeMounts: provider 'sessions' mounts '{target}' into container 'c', which has a "
        "mount of its own there; use another mountPath"
    )
    assert caught.value.reason == "CreateContainerConfigError"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"mounts": (Mount(source="/a", target="b"),)}, "mount 'b': no absolute path below /"),
        ({"mounts": (Mount(source="/a", target="/"),)}, "mount '/': no absolute path below /"),
        ({"mounts": (Mount(source="a", target="/b"),)}, "mount '/b': source 'a' is not an absolute path"),
        ({"mounts": (SOCKET, SOCKET)}, "mount '/run/session': provider 'sessions' gives it too"),
        ({"variables": {"A=B": "1"}}, "variable 'A=B': no name of a variable"),
        ({"annotations": {"kubeletx.io/source": "x"}}, "the key belongs to the agent"),
        ({"annotations": {"session.kubeletx.io/source": "x"}}, "the key belongs to the agent"),
        ({"annotations": {names.CONTAINER_HASH: "x"}}, "the key belongs to the agent"),
        ({"annotations": {"mine": "x"}}, "annotation 'mine': the pod has this annotation itself"),
    ],
)
async def test_what_no_unit_can_have_is_refused_with_the_providers_name(
    fields: dict[str, Any], problem: str
) -> None:
    pod = make_pod(annotations={"mine": "1"})
    with pytest.raises(ExtrasError, match="extras of provider 'sessions' for container 'c': ") as caught:
        await gather_extras({"sessions": giving(**fields)}, pod, pod.spec.containers[0])
    assert problem in str(caught.value)
    assert caught.value.reason == "CreateContainerConfigError"


@pytest.mark.parametrize(
    "fields", [{"mounts": (SOCKET,)}, {"variables": {"A": "1"}}, {"annotations": {"a": "1"}}]
)
async def test_two_providers_may_not_give_the_same(fields: dict[str, Any]) -> None:
    pod = make_pod()
    providers = {"web": giving(**fields), "sessions": giving(**fields)}
    with pytest.raises(ExtrasError, match=r"provider 'web' .* provider 'sessions' gives it too"):
        await gather_extras(providers, pod, pod.spec.containers[0])


async def test_a_scope_names_the_roles_that_get_something(tmp_path: Path) -> None:
    units: dict[str, Any] = {
        "initContainers": [
            {"name": "first", "image": "i"},
            {"name": "proxy", "image": "i", "restartPolicy": "Always"},
        ]
    }

    async def variables_of(name: str, **fields: Any) -> bool:
        provider = giving(variables={"SESSION": "1"}, **fields)
        return "SESSION" in variables(await composed(tmp_path, {"s": provider}, name=name, **units))

    assert [await variables_of(name) for name in ("c", "proxy", "first")] == [True, True, False]
    only = {"scope": frozenset({UnitRole.INIT})}
    assert [await variables_of(name, **only) for name in ("c", "proxy", "first")] == [False, False, True]


async def test_an_ephemeral_container_gets_nothing_unless_the_scope_has_it() -> None:
    pod = make_pod({"ephemeralContainers": [{"name": "debug", "image": "i"}]})
    debug = Container(name="debug", image="i")
    assert await gather_extras({"s": giving(variables={"A": "1"})}, pod, debug) == ()
    scoped = giving(variables={"A": "1"}, scope=frozenset({UnitRole.EPHEMERAL}))
    assert [one.provider for one in await gather_extras({"s": scoped}, pod, debug)] == ["s"]


async def test_a_machine_gets_mounts_and_annotations_and_no_variables(tmp_path: Path) -> None:
    provider = giving(mounts=(SOCKET,), variables={"SESSION": "1"}, annotations={"s.example/a": "1"})
    spec = await composed(
        tmp_path,
        {"sessions": provider},
        name="vm",
        containers=[],
        virtualMachine={"name": "vm", "image": "disk"},
    )
    assert spec.mounts == (SOCKET,)
    assert spec.environment == ()
    assert spec.annotations["s.example/a"] == "1"


async def test_a_runtime_without_mounts_refuses_them_in_words(tmp_path: Path) -> None:
    traits = Traits(refuses=("mounts",))
    with pytest.raises(
        InvalidPod, match=r"provider 'sessions' mounts '/run/session' .* runtime ctr-a takes no"
    ):
        await composed(tmp_path, {"sessions": giving(mounts=(SOCKET,))}, traits=traits)
    spec = await composed(tmp_path, {"sessions": giving(variables={"A": "1"})}, traits=traits)
    assert variables(spec)["A"] == "1"


async def test_a_variable_too_long_for_a_program_names_its_provider(tmp_path: Path) -> None:
    with pytest.raises(InvalidPod, match="extras of provider 'sessions': variable 'A' has"):
        await composed(tmp_path, {"sessions": giving(variables={"A": "x" * 200_000})})


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (Unavailable("no certificate yet"), "no certificate yet"),
        (ValueError("password is 1234"), "ValueError, see the agent's log"),
    ],
)
async def test_a_provider_that_fails_is_named(error: Exception, text: str) -> None:
    async def fail(_pod: Pod, _container: Container | VirtualMachine) -> UnitExtras:
        raise error

    pod = make_pod()
    with pytest.raises(ExtrasError) as caught:
        await gather_extras({"sessions": fail}, pod, pod.spec.containers[0])
    assert str(caught.value) == f"extras of provider 'sessions' for container 'c': {text}"


async def test_a_provider_that_hangs_is_named() -> None:
    async def hang(_pod: Pod, _container: Container | VirtualMachine) -> UnitExtras:
        await asyncio.Event().wait()
        return UnitExtras()

    pod = make_pod()
    with pytest.raises(ExtrasError, match=r"'sessions' .* no answer within 0.01 s"):
        await gather_extras({"sessions": hang}, pod, pod.spec.containers[0], seconds=0.01)


def test_values_and_paths_of_the_node_stay_out_of_logs() -> None:
    extras = UnitExtras(mounts=(SOCKET,), variables={"TOKEN": "s3cret"}, annotations={"a": "s3cret"})
    assert repr(extras) == (
        "UnitExtras(mounts=['/run/session'], variables=['TOKEN'], annotations=['a'], scope=['regular', 'sidecar'])"
    )


async def test_a_provider_that_gives_no_extras_is_named() -> None:
    async def give_nothing(_pod: Pod, _container: object) -> Any:
        return None

    pod = make_pod()
    with pytest.raises(ExtrasError, match=r"'sessions' .* it returned NoneType; return UnitExtras"):
        await gather_extras({"sessions": give_nothing}, pod, pod.spec.containers[0])
