from __future__ import annotations

import shutil

import pytest

from kubeletx.api import IdMapping, Mount, RuntimeName, Unavailable
from kubeletx.pods.specs.inputs import UnitInputs
from kubeletx.pods.specs.unit import build_unit_spec
from kubeletx.pods.specs.user_namespaces import IdRange, UserNamespaces
from tests.unit.pods.environment_model import make_node, make_pod, with_container


def pod(uid: str):
    return make_pod({"hostUsers": False}, uid=uid)


def test_a_pod_with_the_nodes_users_has_no_mapping(tmp_path):
    namespaces = UserNamespaces(tmp_path)
    assert namespaces.mappings_for(make_pod()) is None
    assert namespaces.mappings_for(make_pod({"hostUsers": True})) is None


def test_each_pod_has_ids_of_its_own_that_survive_a_restart(tmp_path):
    first = UserNamespaces(tmp_path).mappings_for(pod("u1"))
    assert first == (IdMapping(host_id=65_536, container_id=0, length=65_536),)
    assert UserNamespaces(tmp_path).mappings_for(pod("u1")) == first
    second = UserNamespaces(tmp_path).mappings_for(pod("u2"))
    assert second == (IdMapping(host_id=131_072, container_id=0, length=65_536),)


def test_ids_of_a_pod_that_is_gone_are_given_again(tmp_path):
    namespaces = UserNamespaces(tmp_path, IdRange(blocks=1))
    first = namespaces.mappings_for(pod("u1"))
    with pytest.raises(Unavailable, match="all 1 blocks"):
        namespaces.mappings_for(pod("u2"))
    shutil.rmtree(tmp_path / "pods/u1")
    assert namespaces.mappings_for(pod("u2")) == first


def test_a_damaged_record_counts_as_none(tmp_path):
    namespaces = UserNamespaces(tmp_path)
    namespaces.mappings_for(pod("u1"))
    (tmp_path / "pods/u1/userns").write_text("{}")
    (tmp_path / "pods/file").write_text("")
    assert namespaces.mappings_for(pod("u2")) is not None


def test_mounts_are_mapped_like_the_processes():
    ids = (IdMapping(host_id=65_536, container_id=0, length=65_536),)
    made, container = with_container({})
    spec = build_unit_spec(
        UnitInputs(
            pod=made,
            container=container,
            node=make_node(),
            attempt=0,
            runtime_name=RuntimeName("a"),
            user_mappings=ids,
        ),
        mounts=(Mount(source="/s", target="/t"), Mount(source="", target="/i", image="x")),
    )
    assert [(one.user_mappings, one.group_mappings) for one in spec.mounts] == [(ids, ids), ((), ())]
