"""Fence configuration: layers of parameters, templates, clouds, and what is refused and why."""

from __future__ import annotations

import pytest

from kubeletx.remedy.model import FenceMethod, FenceProof
from kubeletx.remedy.sources import LoadedConfig

from .config_values import FENCED, fence, loaded, method, node, problems, properties, template

Maps = dict[str, dict[str, str]]
POWER = "power_management=pdu"


def power(maps: Maps, *, name: str = "one", provider_id: str = "") -> FenceMethod:
    """Return the only method of power management of a node."""
    found = loaded(FENCED, maps)
    assert problems(found) == []
    course = fence(found, node(name, provider_id=provider_id))
    assert course.problem == ""
    (made,) = course.power
    return made


def test_later_layers_win() -> None:
    maps: Maps = {
        "fence-cluster-config": {
            "config.properties": "a=shared\nb=shared\nc=shared\nd=shared\ne=shared",
            "fence_x.properties": "b=agent",
            "fence_y.properties": "b=other",
        },
        "fence-method-template-base": template("agent=fence_x", "c=base", "d=base"),
        "fence-method-template-pdu": template("template=base", "d=template", "e=template"),
        "fence-method-pdu": method("template=pdu", "e=method", "f=method"),
        "fence-method-pdu-one": method("f=node", "action=off"),
        "fence-config-one": properties(POWER),
        "fence-config-two": properties(POWER),
    }
    assert power(maps).parameters == {
        "action": "off",
        "a": "shared",
        "b": "agent",
        "c": "base",
        "d": "template",
        "e": "method",
        "f": "node",
    }
    assert power(maps, name="two").parameters["f"] == "method"


def test_a_method_of_a_node_may_be_in_its_own_map_but_not_twice() -> None:
    config = properties(POWER) | {"fence-method-pdu": "agent=fence_x\nplug=2"}
    assert power({"fence-config-one": config}).parameters == {"action": "reboot", "plug": "2"}
    twice: Maps = {"fence-config-one": config, "fence-method-pdu-one": method("agent=fence_x")}
    (problem,) = problems(loaded(FENCED, twice))
    assert problem == (
        "ConfigMap fence-config-one: fence-method-pdu: is also in fence-method-pdu-one; keep one of them"
    )


def test_values_keep_equals_signs_quotes_and_blanks() -> None:
    lines = [
        "agent=fence-x",
        "a = b=c= ",
        'b="  two  "',
        'c=""quoted""',
        'd="half',
        "e=",
        "ssl-insecure=1",
        "\r",
    ]
    maps = {"fence-config-one": properties(POWER), "fence-method-pdu": method(*lines)}
    made = power(maps)
    assert made.agent == "fence_x"
    assert made.parameters == {
        "action": "reboot",
        "a": "b=c=",
        "b": "  two  ",
        "c": '"quoted"',
        "d": '"half',
        "e": "",
        "ssl_insecure": "1",
    }


def test_a_url_of_a_key_replaces_the_key_of_a_lower_layer_and_the_reverse() -> None:
    maps: Maps = {
        "fence-method-template-a": template("agent=fence_x", "key=old", "other@url=https://keys/old"),
        "fence-method-pdu": method("template=a", "key@url=https://keys/{{.NodeName}}", "other=new"),
        "fence-config-one": properties(POWER),
    }
    assert power(maps).parameters == {
        "action": "reboot",
        "key@url": "https://keys/one",
        "other": "new",
    }


def test_controls_of_a_method_are_not_parameters() -> None:
    lines = [
        "agent=fence_x",
        "secret=shared bmc-{{ .NodeName }}",
        "deadline=1m30s",
        "storage=pv-1, ssd",
        "action=off",
    ]
    made = power({"fence-config-one": properties(POWER), "fence-method-pdu": method(*lines)})
    assert made.parameters == {"action": "off"}
    assert made.secrets == ("shared", "bmc-one")
    assert not made.secrets_optional
    assert made.seconds == 90.0
    assert (made.proof, made.storage) == (FenceProof.STORAGE, ("pv-1", "ssd"))


@pytest.mark.parametrize(
    ("step", "lines", "expected"),
    [
        ("power_management", (), ("reboot", FenceProof.POWER)),
        ("power_management", ("action=off",), ("off", FenceProof.POWER)),
        ("power_management", ("action=on",), ("on", FenceProof.NONE)),
        ("power_management", ("method=cycle",), ("reboot", FenceProof.NONE)),
        ("power_management", ("proof=none",), ("reboot", FenceProof.NONE)),
        ("isolation", (), ("off", FenceProof.NONE)),
        ("isolation", ("action=disable", "proof=storage"), ("off", FenceProof.STORAGE)),
        ("isolation", ("proof=power",), ("off", FenceProof.POWER)),
        ("recovery", (), ("on", FenceProof.NONE)),
    ],
)
def test_action_and_proof_follow_the_step(step: str, lines: tuple[str, ...], expected: object) -> None:
    maps = {
        "fence-config-one": properties(f"{step}=pdu"),
        "fence-method-pdu": method("agent=fence_x", *lines),
    }
    course = fence(loaded(FENCED, maps))
    (made,) = (*course.isolation, *course.power, *course.recovery)
    assert (made.parameters["action"], made.proof) == expected


def test_methods_run_in_the_order_in_which_they_are_written() -> None:
    config = properties(
        "isolation=mark-unschedulable out-of-service", "power_management=pdu clean-pods", "kdump=true"
    )
    found = fence(loaded(FENCED, {"fence-config-one": config, "fence-method-pdu": method("agent=fence_x")}))
    assert [made.name for made in found.isolation] == ["mark-unschedulable", "out-of-service"]
    assert [(made.name, made.kind) for made in found.power] == [("pdu", "agent"), ("clean-pods", "builtin")]
    assert found.kdump


def test_a_job_is_a_method_by_its_name_or_with_a_proof() -> None:
    jobs = """
remedyConfigs:
- name: detach
  podTemplate: {spec: {containers: [{name: detach, image: image}]}}
"""
    maps: Maps = {
        "fence-config-one": properties("isolation=detach", "power_management=volumes"),
        "fence-method-volumes": method("remedy=detach", "storage=ssd", "deadline=1m", "pool={{.NodeName}}"),
    }
    course = fence(loaded(FENCED + jobs, maps))
    assert (course.isolation[0].kind, course.isolation[0].proof) == ("job", FenceProof.NONE)
    (made,) = course.power
    assert (made.name, made.kind, made.proof, made.storage) == (
        "volumes",
        "job",
        FenceProof.STORAGE,
        ("ssd",),
    )
    assert (made.parameters, made.seconds) == ({"pool": "one"}, 60.0)
    maps["fence-method-volumes"] = method("remedy=attach")
    assert problems(loaded(FENCED + jobs, maps)) == [
        "ConfigMap fence-method-volumes: remedy: 'attach' is not in remedyConfigs; known: detach"
    ]


# --- sets of nodes, clouds ---


def test_a_map_with_a_selector_is_for_a_set_of_nodes() -> None:
    maps: Maps = {
        "fence-config-racks": properties("node_selector=type=bare-metal", POWER),
        "fence-config-two": properties("isolation=mark-unschedulable"),
        "fence-method-pdu": method("agent=fence_x", "plug={{.NodeName}}"),
    }
    found, labels = loaded(FENCED, maps), {"type": "bare-metal"}
    assert problems(found) == []
    assert fence(found, node("one", labels=labels)).power[0].parameters["plug"] == "one"
    assert fence(found, node("two", labels=labels)).power == ()
    again = loaded(FENCED, maps | {"fence-config-more": properties("node_selector=type=bare-metal", POWER)})
    assert "fence-config-racks selects the same node" in fence(again, node("one", labels=labels)).problem


AWS = "aws:///us-gov-west-1a/i-0abc"


@pytest.mark.parametrize(
    ("provider_id", "agent", "parameters"),
    [
        (AWS, "fence_aws", {"plug": "i-0abc", "region": "us-gov-west-1"}),
        ("gce://p/europe-west1-b/vm", "fence_gce", {"plug": "vm", "zone": "europe-west1-b", "project": "p"}),
        ("openstack:///0c4d", "fence_openstack", {"plug": "0c4d"}),
        (
            "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm",
            "fence_azure_arm",
            {"plug": "vm", "resourceGroup": "g", "subscriptionId": "s"},
        ),
        ("vsphere://4230", "fence_vmware_rest", {"plug": "one"}),
    ],
)
def test_a_node_of_a_cloud_needs_no_map(provider_id: str, agent: str, parameters: dict[str, str]) -> None:
    made = power({}, provider_id=provider_id)
    assert (made.name, made.agent) == ("restart-instance", agent)
    assert made.parameters.items() >= {**parameters, "action": "reboot"}.items()
    assert made.secrets == (f"secret-fence-{provider_id.partition(':')[0]}",)
    assert made.secrets_optional
    course = fence(loaded(), node(provider_id=provider_id))
    assert [one.name for one in (*course.isolation, *course.recovery)] == [
        "mark-unschedulable",
        "mark-schedulable",
    ]


def test_maps_override_the_defaults_of_a_cloud() -> None:
    maps: Maps = {
        "fence-cluster-config": {"fence_aws.properties": "secret=cloud"},
        "fence-method-template-slow": template("region=eu-west-1", "deadline=10m"),
        "fence-method-restart-instance": method("template=slow", "power_timeout=99"),
    }
    made = power(maps, provider_id=AWS)
    assert made.parameters.items() >= {"plug": "i-0abc", "region": "eu-west-1", "power_timeout": "99"}.items()
    assert (made.secrets, made.secrets_optional, made.seconds) == (("cloud",), False, 600.0)
    maps["fence-method-restart-instance"] = method("agent=fence_ipmilan", "ip=bmc")
    assert power(maps, provider_id=AWS).parameters == {"action": "reboot", "ip": "bmc"}


@pytest.mark.parametrize("provider_id", ["", "kind://docker/one", "aws:///us-east-1a", "gce://p/z/a\nplug=b"])
def test_a_node_that_cannot_be_fenced_has_a_problem(provider_id: str) -> None:
    course = fence(loaded(), node(provider_id=provider_id))
    assert course.problem.startswith("node one: spec.providerID: ")
    assert course.problem.endswith("write ConfigMap fence-config-one or fence-method-restart-instance")
    assert (course.isolation, course.power) == ((), ())


# --- bad input ---


@pytest.mark.parametrize(
    ("maps", "expected"),
    [
        (
            {"fence-method-pdu": method("agent=fence_x", "template=gone")},
            "fence-method-pdu: template: fence-method-template-gone does not exist; write ConfigMap",
        ),
        (
            {
                "fence-method-pdu": method("template=a"),
                "fence-method-template-a": template("template=b"),
                "fence-method-template-b": template("template=fence-method-template-a"),
            },
            "fence-method-template-a: template: is its own template: fence-method-template-a -> "
            "fence-method-template-b -> fence-method-template-a; remove",
        ),
        (
            {},
            "fence-config-one: config.properties: method pdu does not exist; write ConfigMap fence-method-pdu",
        ),
        ({"fence-method-pdu": {}}, "fence-method-pdu: method.properties: is missing; the map has nothing"),
        (
            {
                "fence-method-pdu": method("agent=fence_x") | {"other": ""},
                "fence-config-one": {"a": "", "b": ""},
            },
            "fence-config-one: config.properties: is missing; the map has a, b",
        ),
        (
            {"fence-method-pdu": method("ip=one")},
            "fence-method-pdu: agent: is missing; write agent=fence_NAME",
        ),
        ({"fence-method-pdu": method("agent=/bin/sh")}, "agent: '/bin/sh' is not the name of a fence agent"),
        ({"fence-method-pdu": method("agent=fence_x", "a=1", "a=2")}, "line 3: a is set twice; keep one"),
        ({"fence-method-pdu": method("login-x=1", "login_x=2")}, "line 2: login_x is set twice"),
        ({"fence-method-pdu": method("a=1", "a@url=https://b")}, "line 2: a@url is set twice"),
        (
            {"fence-method-pdu": method("a@url=file:///etc/shadow")},
            "the value of a@url is not an http or https",
        ),
        ({"fence-method-pdu": method("agent")}, "method.properties line 1: has no '='; write KEY=VALUE"),
        ({"fence-method-pdu": method("a b=1")}, "line 1: key 'a b' is not a name; write KEY=VALUE"),
        ({"fence-method-pdu": method("a=b\rc=d")}, "line 1: the value of a has a control character"),
        ({"fence-method-pdu": method("agent=fence_x", "action=metadata")}, "action: 'metadata' is not known"),
        ({"fence-method-pdu": method("agent=fence_x", "deadline=-3m")}, "deadline: '-3m' is negative"),
        ({"fence-method-pdu": method("agent=fence_x", "deadline=0s")}, "deadline: '0s' is out of range"),
        ({"fence-method-pdu": method("agent=fence_x", "proof=yes")}, "proof: 'yes' is not known; write none"),
        (
            {"fence-method-pdu": method("agent=fence_x", "plug={{.Nodename}}")},
            "plug: {{.Nodename}} is not a var",
        ),
        (
            {"fence-config-one": properties("node_name=two", POWER)},
            "node_name: is 'two'; write node_name=one",
        ),
        (
            {"fence-config-one": properties("isolaton=a", POWER)},
            "isolaton: is not known; write one of node_name",
        ),
        ({"fence-config-one": properties("power_management=")}, "config.properties: has no method; write"),
        ({"fence-config-one": properties("power_management=A")}, "'A' is not a method's name"),
        ({"fence-config-one": properties("node_selector=a", POWER)}, "node_selector: 'a' is not KEY=VALUE"),
        (
            {
                "fence-cluster-config": properties("grace_timeout=5"),
                "fence-method-pdu": method("agent=fence_x"),
            },
            "grace_timeout: is not a parameter of agents; write power_wait in ConfigMap remedy-settings",
        ),
    ],
)
def test_bad_maps_are_named_at_load_and_start_nothing(maps: Maps, expected: str) -> None:
    found = loaded(FENCED, {"fence-config-one": properties(POWER)} | maps)
    assert any(expected in problem for problem in problems(found))
    course = fence(found)
    assert course.problem
    assert (course.isolation, course.power, course.recovery) == ((), (), ())


def test_a_value_that_the_node_does_not_give_is_named() -> None:
    maps: Maps = {
        "fence-config-one": properties(POWER),
        "fence-method-pdu": method("agent=fence_x", "plug={{.InstanceName}}"),
    }
    assert fence(loaded(FENCED, maps)).problem == (
        "ConfigMap fence-method-pdu: plug: {{.InstanceName}} has no value: the node's providerID is ''; "
        "write the value itself"
    )


def test_the_only_key_of_a_map_is_read_whatever_its_name() -> None:
    maps: Maps = {
        "fence-config-one": {"config": POWER},
        "fence-method-pdu": {"properties": "template=a"},
        "fence-method-template-a": method("agent=fence_x"),
    }
    assert power(maps).agent == "fence_x"


# --- the last good configuration ---


def last_good() -> tuple[LoadedConfig, Maps]:
    maps: Maps = {"fence-config-one": properties(POWER), "fence-method-pdu": method("agent=fence_x")}
    before = loaded(FENCED, maps)
    assert fence(before).power
    return before, maps


def test_a_node_keeps_its_last_good_course() -> None:
    before, maps = last_good()
    maps |= {"fence-method-pdu": method("agent="), "fence-config-two": properties(POWER)}
    found = loaded(FENCED, maps, last=before)
    assert len(problems(found)) == 1
    assert fence(found).power == fence(before).power
    assert fence(found, node("two")).problem
    maps["fence-method-pdu"] = method("agent=fence_y")
    assert fence(loaded(FENCED, maps, last=found)).power[0].agent == "fence_y"


def test_a_removed_map_is_not_used_any_more() -> None:
    before, maps = last_good()
    del maps["fence-config-one"]
    assert fence(loaded(FENCED, maps, last=before)).power == ()


def test_a_set_of_nodes_keeps_its_map_if_the_map_cannot_be_read() -> None:
    maps: Maps = {
        "fence-config-racks": properties("node_selector=type=rack", POWER),
        "fence-method-pdu": method("agent=fence_x"),
    }
    rack = node("one", labels={"type": "rack"}, provider_id=AWS)
    before = loaded(FENCED, maps)
    assert fence(before, rack).power[0].name == "pdu"
    found = loaded(FENCED, maps | {"fence-config-racks": properties("node_selector")}, last=before)
    assert fence(found, rack).power[0].name == "pdu"
    new = node("two", labels={"type": "rack"}, provider_id=AWS)
    assert "line 1: has no '='" in fence(found, new).problem


def test_a_password_in_a_config_map_is_noted() -> None:
    maps = {
        "fence-config-one": properties("power_management=pdu"),
        "fence-method-pdu": method(
            "agent=fence_x", "password=word", "password_script=/x", "key@url=https://k.example"
        ),
    }
    (note,) = loaded(maps=maps).notes
    assert (
        note
        == "ConfigMap fence-method-pdu: method.properties password: who may read ConfigMaps sees it; write it to a Secret, and secret=NAME here"
    )
