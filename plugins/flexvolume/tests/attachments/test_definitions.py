"""Manifests: schemas have every field, deploy/storage has what the code makes, rights are what the code uses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeletx_flexvolume.attachments.definitions import (
    ATTACHMENT_KIND,
    ATTACHMENTS,
    CLUSTERS,
    GROUP,
    STALE,
    STALE_KIND,
    VERSION,
    cluster_resource,
    definitions,
    manifests_text,
    rights,
)
from kubeletx_flexvolume.attachments.garbage import MAX_ITEMS, GarbageItem, item_of
from kubeletx_flexvolume.attachments.record import MAX_ENTRIES, AttachmentEntry, value_of
from kubeletx_flexvolume.attachments.stores import open_stores
from kubeletx_flexvolume.values import AccessMode, HolderStatus

from kubeletx.api import Internal, InvalidConfig
from kubeletx.testing import FakeClock
from kubeletx.testing.clock import START
from kubeletx_testing.apiserver import ApiServerDouble
from plugins.flexvolume.tests.attachments.attachment_model import entry, volume
from plugins.flexvolume.tests.attachments.cluster_model import RECORDS, close, set_up

DEPLOY = Path(__file__).resolve().parents[4] / "deploy" / "storage"


def entry_list(number: int) -> dict[str, Any]:
    """The schema of the list of entries."""
    (version,) = definitions()[number]["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    entries: dict[str, Any] = spec["properties"]["attachments"]
    return entries


def item_properties(number: int) -> dict[str, Any]:
    properties: dict[str, Any] = entry_list(number)["items"]["properties"]
    return properties


def test_schemas_have_every_field() -> None:
    """An API server drops a field that the schema does not have."""
    assert item_properties(0).keys() == set(AttachmentEntry.__struct_encode_fields__)
    assert item_properties(1).keys() == set(GarbageItem.__struct_encode_fields__)


def test_schemas_have_the_values_and_limits_of_the_code() -> None:
    for number, (resource, kind, most) in enumerate(
        ((ATTACHMENTS, ATTACHMENT_KIND, MAX_ENTRIES), (STALE, STALE_KIND, MAX_ITEMS))
    ):
        assert entry_list(number)["maxItems"] == most
        assert item_properties(number)["status"]["enum"] == [one.value for one in HolderStatus]
        assert item_properties(number)["modes"]["items"]["enum"] == [one.value for one in AccessMode]
        spec = definitions()[number]["spec"]
        assert (spec["group"], spec["versions"][0]["name"]) == (GROUP, VERSION)
        assert (spec["names"]["plural"], spec["names"]["kind"]) == (resource.plural, kind)


async def test_a_server_stores_records_as_they_are(api: ApiServerDouble) -> None:
    stores = open_stores(kubeconfig=set_up(api), records=None, node="n1", clock=FakeClock(auto_advance=True))
    of = volume("pv-1", parameters={"server": "10.0.0.1"}, cluster="storage/main")
    full = entry("n1", volume=of, device="/dev/loop0", since="2030-01-01T00:00:00Z", reason="why")
    for value in (value_of([full, entry("n2", "b", volume=of)]), value_of([entry()])):
        made = await stores.attachments.create("pv-1", value)
        assert made.value == value
        await stores.attachments.delete("pv-1", expected_version=made.version)
    await close(stores)


async def test_a_server_refuses_what_is_not_a_record(api: ApiServerDouble) -> None:
    stores = open_stores(kubeconfig=set_up(api), records=None, node="n1", clock=FakeClock(auto_advance=True))
    value = value_of([entry()])
    wrong: list[dict[str, Any]] = [
        {},
        {**value, "attachments": [{**value["attachments"][0], "status": "Lost"}]},
        {**value, "attachments": [{**value["attachments"][0], "node": ""}]},
        {**value, "attachments": [{**value["attachments"][0], "since": "yesterday"}]},
        {**value, "attachments": [{"node": "n1"}]},
    ]
    for one in wrong:
        with pytest.raises(Internal, match="is invalid"):
            await stores.attachments.create("pv-1", one)
    await close(stores)


async def test_a_garbage_list_is_stored_as_it_is(api: ApiServerDouble) -> None:
    from kubeletx_flexvolume.attachments.garbage import GarbageLists

    clock = FakeClock(auto_advance=True)
    stores = open_stores(kubeconfig=set_up(api), records=None, node="n1", clock=clock)
    items = [item_of("pv-1", entry(), why="gone", now=START)]
    lists = GarbageLists(stores.stale, clock)
    await lists.add(items)
    assert await lists.of("n1") == tuple(items)
    await lists.remove("n1", items)
    assert await lists.of("n1") == ()
    await close(stores)


def test_kubectl_shows_who_has_a_volume(api: ApiServerDouble) -> None:
    set_up(api)
    entries = [entry("n1", "a", device="/dev/loop0"), entry("n2", "b", read_only=True)]
    made = {
        "apiVersion": RECORDS.api_version,
        "kind": RECORDS.kind,
        "metadata": {"name": "pv-1"},
        "spec": value_of(entries),
    }
    api.admin.create(RECORDS, made)
    accept = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    table = api.admin.send("GET", RECORDS.path(), headers=accept).json
    names = [one["name"] for one in table["columnDefinitions"]]
    (row,) = table["rows"]
    cells = dict(zip(names, row["cells"], strict=True))
    assert cells.pop("Age")
    assert cells == {
        "Name": "pv-1",
        "Nodes": "n1,n2",
        "Pods": "default/a,default/b",
        "Mode": "ReadWrite",
        "Device": "/dev/loop0",
        "Status": "Attaching",
    }
    assert api.admin.get("customresourcedefinitions", f"volumeattachments.{GROUP}")["spec"]["names"][
        "shortNames"
    ] == ["kva"]


def test_deploy_has_what_the_code_makes() -> None:
    texts = [(DEPLOY / name).read_text() for name in ("crds.yaml", "rbac.yaml")]
    assert "---\n".join(texts) == manifests_text()


def test_rights_follow_the_storage_clusters_that_are_watched() -> None:
    ceph = cluster_resource("ceph.rook.io/v1/cephclusters")
    (both,) = (one for one in rights(clusters=[CLUSTERS, ceph]) if one["kind"] == "ClusterRole")
    assert {GROUP, "ceph.rook.io"} <= {rule["apiGroups"][0] for rule in both["rules"]}
    text = manifests_text("storage", ["ceph.rook.io/v1/cephclusters"])
    (role,) = [one for one in yaml.safe_load_all(text) if one["kind"] == "ClusterRole"]
    assert {
        "apiGroups": ["ceph.rook.io"],
        "resources": ["cephclusters"],
        "verbs": ["list", "patch", "watch"],
    } in role["rules"]
    assert {one["metadata"].get("namespace", "storage") for one in rights("storage")} == {"storage"}


@pytest.mark.parametrize("text", ["cephclusters", "a/b", "a//c", "A/v1/b", " a/v1/b", "a/b/c/d"])
def test_another_text_is_not_a_resource(text: str) -> None:
    with pytest.raises(InvalidConfig, match=r"--cluster-resource.*write for example ceph.rook.io/v1"):
        cluster_resource(text)
