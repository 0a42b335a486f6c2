"""What pods refer to, read from an API server with a node's rights."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import ClusterVolume, ObjectUser, PodUid, SystemClock, TokenParameters, Unavailable
from kubeletx.apiserver.objects.api_objects import ApiObjects, ServiceSink
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.objects import Service, ServiceSpec
from kubeletx_testing.apiserver import ApiServerDouble, Rule
from kubeletx_testing.waiting import let_others_work, until
from tests.unit.apiserver.api_connections import connections

GUARD_SECONDS = 60
SPACE = "default"


@pytest.fixture
def api(api: ApiServerDouble) -> ApiServerDouble:
    """One that soon notices that a watch was left: at the next write."""
    api.settings.bookmark_seconds = 0.1
    return api


class Seen:
    """Who was told of news."""

    def __init__(self) -> None:
        self.reported: list[PodUid] = []
        self._event = asyncio.Event()

    def __call__(self, uid: PodUid) -> None:
        self.reported.append(uid)
        self._event.set()

    async def wait(self) -> None:
        async with asyncio.timeout(GUARD_SECONDS):
            await self._event.wait()
        self._event.clear()


@asynccontextmanager
async def running(
    api: ApiServerDouble, seen: Seen | None = None, **seconds: float
) -> AsyncIterator[ApiObjects]:
    client = KubeClient(load_kubeconfig(api.node_kubeconfig("one")), clock=SystemClock())
    objects = ApiObjects(client, "one", clock=SystemClock(), **seconds)
    if seen is not None:
        objects.subscribe(seen)
    task = asyncio.create_task(objects.run())
    try:
        yield objects
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await client.close()
        await until(lambda: not connections(api))  # TLS says good-bye first


def make_pod(api: ApiServerDouble, name: str = "web", **spec: Any) -> PodUid:
    spec = {"nodeName": "one", "containers": [{"name": "c", "image": "i"}], **spec}
    made = api.admin.create("pods", {"metadata": {"name": name}, "spec": spec}, SPACE)
    return PodUid(made["metadata"]["uid"])


def refers_to(*, config_map: str = "", secret: str = "", claim: str = "") -> dict[str, Any]:
    volumes: list[dict[str, Any]] = []
    if config_map:
        volumes.append({"name": "m", "configMap": {"name": config_map}})
    if secret:
        volumes.append({"name": "s", "secret": {"secretName": secret}})
    if claim:
        volumes.append({"name": "v", "persistentVolumeClaim": {"claimName": claim}})
    return {"volumes": volumes}


def user(uid: PodUid, name: str = "web", **names: str) -> ObjectUser:
    return ObjectUser(
        uid=uid,
        name=name,
        namespace=SPACE,
        config_maps=frozenset([names["config_map"]] if "config_map" in names else []),
        secrets=frozenset([names["secret"]] if "secret" in names else []),
    )


def settings(api: ApiServerDouble, value: str, **more: Any) -> None:
    api.admin.create("configmaps", {"metadata": {"name": "settings"}, "data": {"a": value}, **more}, SPACE)


async def test_a_config_map_is_read_and_its_users_hear_of_every_change(api: ApiServerDouble) -> None:
    uid, seen = make_pod(api, **refers_to(config_map="settings")), Seen()
    async with running(api, seen) as objects:
        objects.follow(user(uid, config_map="settings"))
        assert await objects.find_config_map(SPACE, "settings") is None
        settings(api, "1")
        await seen.wait()
        found = await objects.find_config_map(SPACE, "settings")
        assert found is not None
        assert found.text == {"a": "1"}
        api.admin.patch("configmaps", "settings", {"metadata": {"labels": {"x": "y"}}}, SPACE)
        api.admin.patch("configmaps", "settings", {"data": {"a": "2"}}, SPACE)
        await seen.wait()
        found = await objects.find_config_map(SPACE, "settings")
        assert found is not None
        assert found.text == {"a": "2"}
        api.admin.delete("configmaps", "settings", SPACE)
        await seen.wait()
        assert await objects.find_config_map(SPACE, "settings") is None
    assert seen.reported == [uid] * 3  # a label alone is no news


async def test_a_node_asks_for_single_objects_only_and_one_watch_serves_all_pods(
    api: ApiServerDouble,
) -> None:
    settings(api, "1")
    pods = [make_pod(api, f"p{number}", **refers_to(config_map="settings")) for number in range(3)]
    async with running(api) as objects:
        for number, uid in enumerate(pods):
            objects.follow(user(uid, f"p{number}", config_map="settings"))
            assert await objects.find_config_map(SPACE, "settings") is not None
        await until(lambda: api.watch_count("configmaps") == 1)
        asked = api.requests.all(user="system:node:one", path="configmaps")
        assert {one.query["fieldSelector"] for one in asked} == {"metadata.name=settings"}
        assert {one.code for one in asked} <= {0, 200}
        for uid in pods[:2]:
            objects.leave(uid)
        assert api.watch_count("configmaps") == 1
        objects.leave(pods[2])
        await until(lambda: api.watch_count("configmaps") == 0)


async def test_a_pod_that_refers_to_others_now_leaves_what_it_had(api: ApiServerDouble) -> None:
    settings(api, "1")
    uid = make_pod(api, **refers_to(config_map="settings", secret="key"))
    async with running(api) as objects:
        objects.follow(user(uid, config_map="settings"))
        await until(lambda: api.watch_count("configmaps") == 1)
        objects.follow(user(uid, secret="key"))
        await until(lambda: (api.watch_count("configmaps"), api.watch_count("secrets")) == (0, 1))


async def test_what_is_immutable_is_read_once_and_not_watched(api: ApiServerDouble) -> None:
    settings(api, "1", immutable=True)
    uid = make_pod(api, **refers_to(config_map="settings"))
    async with running(api) as objects:
        objects.follow(user(uid, config_map="settings"))
        found = await objects.find_config_map(SPACE, "settings")
        assert found is not None
        assert found.text == {"a": "1"}
        await until(lambda: api.watch_count("services") == 1)
        await until(lambda: api.watch_count("configmaps") == 0)
        assert await objects.find_config_map(SPACE, "settings") == found


async def test_a_secret_comes_as_bytes_and_shows_none_of_them(api: ApiServerDouble) -> None:
    data = {"k": base64.b64encode(b"s3cret").decode()}
    api.admin.create("secrets", {"metadata": {"name": "key"}, "data": data}, SPACE)
    uid = make_pod(api, **refers_to(secret="key"))
    async with running(api) as objects:
        objects.follow(user(uid, secret="key"))
        found = await objects.find_secret(SPACE, "key")
    assert found is not None
    assert found.as_bytes() == {"k": b"s3cret"}
    assert "s3cret" not in repr(found)


async def test_while_the_api_server_is_away_the_content_stays_and_news_come_after(
    api: ApiServerDouble,
) -> None:
    settings(api, "1")
    uid, seen = make_pod(api, **refers_to(config_map="settings")), Seen()
    async with running(api, seen) as objects:
        objects.follow(user(uid, config_map="settings"))
        assert await objects.find_config_map(SPACE, "settings") is not None
        await asyncio.to_thread(api.stop)
        found = await objects.find_config_map(SPACE, "settings")
        assert found is not None
        assert found.text == {"a": "1"}
        api.start()
        api.admin.patch("configmaps", "settings", {"data": {"a": "2"}}, SPACE)
        await seen.wait()
        found = await objects.find_config_map(SPACE, "settings")
        assert found is not None
        assert found.text == {"a": "2"}


async def test_a_caller_without_an_answer_gets_the_first_one(api: ApiServerDouble) -> None:
    settings(api, "1")
    uid, seen = make_pod(api, **refers_to(config_map="settings")), Seen()
    await asyncio.to_thread(api.stop)
    async with running(api, seen, wait_seconds=0.05) as objects:
        objects.follow(user(uid, config_map="settings"))
        with pytest.raises(Unavailable, match='configmap "default/settings" cannot be read'):
            await objects.find_config_map(SPACE, "settings")
        api.start()
        await seen.wait()
        assert await objects.find_config_map(SPACE, "settings") is not None


async def test_an_object_that_the_pod_does_not_refer_to_is_refused(api: ApiServerDouble) -> None:
    settings(api, "1")
    make_pod(api)
    async with running(api) as objects:
        with pytest.raises(Exception, match="no relationship found"):
            await objects.find_config_map(SPACE, "settings")


async def test_services_of_a_namespace_are_those_with_an_address(api: ApiServerDouble) -> None:
    ports = [{"name": "http", "port": 80}]
    for name, spec in (
        ("web", {"ports": ports, "clusterIP": "10.0.0.7"}),
        ("bare", {"ports": ports, "clusterIP": "None"}),
    ):
        api.admin.create("services", {"metadata": {"name": name}, "spec": spec}, SPACE)
    async with running(api) as objects:
        before = {one.name for one in await objects.list_services(SPACE)}
        assert "web" in before
        assert "bare" not in before
        api.admin.delete("services", "web", SPACE)
        async with asyncio.timeout(GUARD_SECONDS):
            while "web" in {one.name for one in await objects.list_services(SPACE)}:
                await let_others_work()
        assert await objects.list_services("elsewhere") == ()


def test_a_service_that_cannot_be_read_stays_as_it_was() -> None:
    def service(name: str, namespace: str) -> Service:
        meta = ObjectMeta(name=name, namespace=namespace)
        return Service(metadata=meta, spec=ServiceSpec(cluster_ip="10.0.0.7"))

    services = ServiceSink()
    services.replace([service("web", SPACE), service("db", SPACE), service("x", "other")], [])
    services.replace([service("db", SPACE)], [ObjectMeta(name="web", namespace=SPACE)])
    assert [one.name for one in services.of(SPACE)] == ["db", "web"]
    for name in ("web", "db"):
        services.drop(service(name, SPACE))
    assert services.of(SPACE) == ()


def make_claim(api: ApiServerDouble, *, bound: bool = True, name: str = "data", **volume: Any) -> None:
    size, modes = {"storage": "1Gi"}, ["ReadWriteOnce"]
    wanted = {"volumeName": "disk", "accessModes": modes, "resources": {"requests": size}}
    claim = api.admin.create("persistentvolumeclaims", {"metadata": {"name": name}, "spec": wanted}, SPACE)
    reference = {"namespace": SPACE, "name": name, "uid": claim["metadata"]["uid"]}
    spec = {
        "capacity": size,
        "accessModes": modes,
        "local": {"path": "/disk", "fsType": "xfs"},
        "claimRef": reference,
        **volume,
    }
    api.admin.create("persistentvolumes", {"metadata": {"name": "disk"}, "spec": spec})
    if bound:
        bind(api, name)


def bind(api: ApiServerDouble, name: str = "data") -> None:
    api.admin.patch("persistentvolumeclaims", name, {"status": {"phase": "Bound"}}, SPACE, "status")


async def test_a_claim_is_followed_to_its_volume_and_remembered_without_the_api_server(
    api: ApiServerDouble,
) -> None:
    make_claim(api, local=None, nfs={"server": "files", "path": "/x"}, mountOptions=["nfsvers=4.2"])
    uid = make_pod(api, **refers_to(claim="data"))
    async with running(api) as objects:
        objects.follow(user(uid))
        expected = ClusterVolume(
            name="disk",
            kind="nfs",
            path="/x",
            server="files",
            mount_options=("nfsvers=4.2",),
            uid=api.admin.get("persistentvolumes", "disk")["metadata"]["uid"],
            claim="data",
            access_modes=("ReadWriteOnce",),
            capacity_bytes=1 << 30,
        )
        assert await objects.find_volume(uid, "data") == expected
        await asyncio.to_thread(api.stop)
        assert await objects.find_volume(uid, "data") == expected


@pytest.mark.parametrize("is_there", [True, False])
async def test_a_claim_that_is_not_bound_yet_is_looked_at_until_it_is(
    api: ApiServerDouble, is_there: bool
) -> None:
    if is_there:
        make_claim(api, bound=False)
    uid, seen = make_pod(api, **refers_to(claim="data")), Seen()
    async with running(api, seen) as objects:
        objects.follow(user(uid))
        if is_there:
            with pytest.raises(Unavailable, match=r"default/data is not bound"):
                await objects.find_volume(uid, "data")
            bind(api)
        else:
            assert await objects.find_volume(uid, "data") is None
            make_claim(api)
        await seen.wait()
        found = await objects.find_volume(uid, "data")
        assert found is not None
        assert (found.kind, found.path, found.fs_type) == ("local", "/disk", "xfs")


async def test_a_claim_whose_pod_left_while_it_was_looked_up_is_not_looked_at_any_more(
    api: ApiServerDouble,
) -> None:
    uid, other = make_pod(api, **refers_to(claim="data")), make_pod(api, "other", **refers_to(claim="kept"))
    make_claim(api, bound=False)

    def looks(name: str) -> int:
        return len(api.requests.all(path=f"/persistentvolumeclaims/{name}", user="system:node:one"))

    slow = api.faults.add(Rule(delay_seconds=1, path="/persistentvolumeclaims/data"))
    async with running(api, claim_seconds=0.01) as objects:
        objects.follow(user(uid))
        objects.follow(user(other, "other"))
        asked = asyncio.create_task(objects.find_volume(uid, "data"))
        await until(lambda: slow.hits > 0)
        objects.leave(uid)
        with pytest.raises(Unavailable, match="is not bound"):
            await asked
        assert await objects.find_volume(other, "kept") is None
        await until(lambda: looks("kept") >= 5)
        assert looks("data") == 1


@pytest.mark.parametrize(("label", "is_here"), [("a", True), ("b", False)])
async def test_the_node_affinity_of_a_volume_is_held_against_the_nodes_labels(
    api: ApiServerDouble, label: str, is_here: bool
) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    make_claim(api, nodeAffinity={"required": {"nodeSelectorTerms": [term]}})
    uid = make_pod(api, **refers_to(claim="data"))
    async with running(api) as objects:
        objects.node_labels = {"zone": label}
        objects.follow(user(uid))
        found = await objects.find_volume(uid, "data")
        assert found is not None
        assert found.is_here is is_here


@pytest.mark.parametrize("is_own", [True, False])
async def test_a_claim_of_a_template_must_have_been_made_for_the_pod(
    api: ApiServerDouble, is_own: bool
) -> None:
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    uid = make_pod(api, volumes=[{"name": "d", "ephemeral": {"volumeClaimTemplate": template}}])
    make_claim(api, name="web-d")
    if is_own:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "web", "uid": uid, "controller": True}
        patch = {"metadata": {"ownerReferences": [owner]}}
        api.admin.patch("persistentvolumeclaims", "web-d", patch, SPACE)
    async with running(api) as objects:
        objects.follow(replace(user(uid), own_claims=frozenset({"web-d"})))
        if is_own:
            assert await objects.find_volume(uid, "web-d") is not None
        else:
            with pytest.raises(Unavailable, match="was not made for this pod"):
                await objects.find_volume(uid, "web-d")


async def test_a_volume_that_is_bound_to_another_claim_is_not_taken(api: ApiServerDouble) -> None:
    make_claim(api, claimRef={"namespace": SPACE, "name": "data", "uid": "another"})
    uid = make_pod(api, **refers_to(claim="data"))
    async with running(api) as objects:
        objects.follow(user(uid))
        with pytest.raises(Unavailable, match="bound to another claim"):
            await objects.find_volume(uid, "data")


async def test_a_token_is_bound_to_its_pod_and_kept_while_it_is_young(api: ApiServerDouble) -> None:
    uid = make_pod(api, volumes=[{"name": "t", "projected": {"sources": [
        {"serviceAccountToken": {"path": "token"}},
        {"serviceAccountToken": {"path": "vault", "audience": "vault"}},
    ]}}])  # fmt: skip
    async with running(api) as objects:
        objects.follow(user(uid))
        first = await objects.token(uid, TokenParameters())
        assert await objects.token(uid, TokenParameters()) == first
        assert await objects.token(uid, TokenParameters(audience="vault", expiration_seconds=600)) != first
        review = api.admin.create("tokenreviews", {"spec": {"token": first.decode()}})
        extra = review["status"]["user"]["extra"]
        assert extra["authentication.kubernetes.io/pod-uid"] == [uid]
        asked = api.requests.all(user="system:node:one", path="/token")
        assert [one.code for one in asked] == [201, 201]
        objects.leave(uid)
        with pytest.raises(Unavailable, match="not here any more"):
            await objects.token(uid, TokenParameters())


DISK = {
    "driver": "example.com/disk",
    "options": {"image": "a"},
    "fsType": "xfs",
    "readOnly": True,
    "secretRef": {"name": "key", "namespace": "storage"},
}


async def test_a_flex_volume_behind_a_claim_is_read_in_full(api: ApiServerDouble) -> None:
    make_claim(
        api,
        local=None,
        flexVolume=DISK,
        capacity={"storage": "2Gi"},
        accessModes=["ReadWriteOnce"],
        volumeMode="Block",
    )
    api.admin.patch(
        "persistentvolumeclaims", "data", {"status": {"capacity": {"storage": "1Gi"}}}, SPACE, "status"
    )
    uid = make_pod(api, **refers_to(claim="data"))
    async with running(api) as objects:
        objects.follow(user(uid))
        found = await objects.find_volume(uid, "data")
        assert found is not None
        assert (found.kind, found.source, found.read_only) == ("flexVolume", DISK, True)
        assert (found.is_block, found.access_modes) == (True, ("ReadWriteOnce",))
        assert (found.capacity_bytes, found.claim_bytes) == (2 << 30, 1 << 30)


async def test_the_secret_of_a_persistent_volume_may_be_of_another_namespace_and_has_its_type(
    api: ApiServerDouble,
) -> None:
    api.admin.create("namespaces", {"metadata": {"name": "storage"}})
    secret = {"metadata": {"name": "key"}, "type": "example.com/disk", "stringData": {"k": "v"}}
    api.admin.create("secrets", secret, "storage")
    api.admin.create("secrets", {**secret, "metadata": {"name": "other"}}, "storage")
    make_claim(api, local=None, flexVolume=DISK)
    uid = make_pod(api, **refers_to(claim="data"))
    async with running(api) as objects:
        objects.follow(user(uid))
        found = await objects.find_volume_secret(uid, "storage", "key")
        assert found is not None
        assert (found.as_bytes(), found.type) == ({"k": b"v"}, "example.com/disk")
        with pytest.raises(Unavailable, match=r'secret "storage/other".*no relationship found'):
            await objects.find_volume_secret(uid, "storage", "other")
        api.admin.delete("secrets", "key", "storage")
        assert await objects.find_volume_secret(uid, "storage", "key") is None
        objects.leave(uid)
        with pytest.raises(Unavailable, match="not here any more"):
            await objects.find_volume_secret(uid, "storage", "key")


async def test_an_expansion_is_written_to_the_claim_with_the_nodes_own_rights(api: ApiServerDouble) -> None:
    make_claim(api, local=None, flexVolume=DISK)
    conditions = [{"type": kind, "status": "True"} for kind in ("FileSystemResizePending", "Other")]
    status = {"status": {"capacity": {"storage": "1Gi"}, "conditions": conditions}}
    api.admin.patch("persistentvolumeclaims", "data", status, SPACE, "status")
    uid = make_pod(api, **refers_to(claim="data"))
    async with running(api) as objects:
        objects.follow(user(uid))
        await objects.note_expanded(uid, "data", 2 << 30)
        after = api.admin.get("persistentvolumeclaims", "data", SPACE)["status"]
        assert after["capacity"] == {"storage": "2Gi"}
        assert [one["type"] for one in after["conditions"]] == ["Other"]
        api.admin.delete("persistentvolumeclaims", "data", SPACE)
        api.admin.patch("persistentvolumeclaims", "data", {"metadata": {"finalizers": None}}, SPACE)
        await objects.note_expanded(uid, "data", 2 << 30)
