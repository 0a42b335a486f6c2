"""Stores over fake runtimes: presence, shared pulls, back-off, collection, pruning."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubeletx.api import (
    Conflict,
    ImageAuth,
    ImageSpec,
    ObjectRef,
    PermissionDenied,
    PodUid,
    PullProgress,
    StoreId,
    StoreInfo,
    SupportsImages,
    Traits,
    Unavailable,
    Unsupported,
    names,
)
from kubeletx.runtimes.images.choice import FilesystemUsage
from kubeletx.runtimes.images.gc import ImageCollector
from kubeletx.runtimes.images.records import METADATA, ImageRecords
from kubeletx.runtimes.images.settings import CollectionSettings, PullSettings
from kubeletx.runtimes.images.store import ImageStore, PullBackOff, PullFailed
from kubeletx.runtimes.images.stores import ImageStores
from kubeletx.runtimes.images.verification import AccountUse, Credential, Puller
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.store import Store
from kubeletx.testing import FakeEventSink, FakeRuntime
from tests.unit.runtimes.conftest import World, sandbox_of, unit_of


class NoCredentials:
    def __init__(self) -> None:
        self.auths: list[ImageAuth] = []
        self.personal: set[str] = set()
        self.account: AccountUse | None = None

    def is_personal(self, image: str) -> bool:
        return image in self.personal

    async def lookup(self, _image: str, _puller: Puller | None) -> Sequence[Credential]:
        return [Credential(auth=one, origin=self.account) for one in self.auths]

    async def find_account(self, _puller: Puller) -> AccountUse | None:
        return self.account


class Shop:
    """Two runtimes, `one` and `two`, their stores, and a collector."""

    def __init__(self, registry: RuntimeRegistry, world: World, store: Store) -> None:
        self.world = world
        self.registry = registry
        self.database = store
        self.records = ImageRecords(store)
        self.credentials = NoCredentials()
        self.stores = ImageStores(
            registry,
            clock=world.clock,
            records=self.records,
            credentials=self.credentials,
            settings=PullSettings(qps=0),
        )
        self.disk = FilesystemUsage(capacity_bytes=1000, available_bytes=1000)
        self.wanted: dict[str, list[str]] = {}
        self.sink = FakeEventSink()
        self.collector = ImageCollector(
            self.stores,
            records=self.records,
            clock=world.clock,
            events=self.sink,
            node=ObjectRef(kind="Node", name="n"),
            settings=CollectionSettings(),
            wanted=lambda runtimes: [
                i for name, some in self.wanted.items() if name in runtimes for i in some
            ],
            disk_usage=lambda _path: self.disk,
        )

    def fake(self, name: str) -> FakeRuntime:
        return self.world.runtimes[name]

    async def store(self, name: str = "one") -> ImageStore:
        return await self.stores.of(self.registry.get(name))

    async def pull(self, image: str, runtime: str = "one", **more: object) -> str:
        handle = self.registry.get(runtime)
        store = await self.stores.of(handle)
        status = await store.pull(ImageSpec(requested=image), via=handle, **more)  # type: ignore[arg-type]
        return status.id


@contextlib.asynccontextmanager
async def shop_in(world: World) -> AsyncIterator[Shop]:
    store = await Store.open(world.root / "images.db", [METADATA], later_seconds=0.0)
    async with world.running() as registry:
        shop = Shop(registry, world, store)
        await shop.records.load()
        try:
            yield shop
        finally:
            shop.collector.close()
            await shop.stores.close()
            await store.close()


@pytest.fixture
async def shop(world: World) -> AsyncIterator[Shop]:
    world.endpoints = (world.endpoint("one"), world.endpoint("two"))
    async with shop_in(world) as shop:
        yield shop


def share(shop: Shop) -> None:
    """Both runtimes on one store."""

    async def info() -> StoreInfo:
        return StoreInfo(id=StoreId("shared"))

    for name in ("one", "two"):
        shop.fake(name).store_info = info  # type: ignore[method-assign]
    shop.fake("two").backend.images = shop.fake("one").backend.images


async def test_different_store_ids_are_two_stores(shop: Shop) -> None:
    assert await shop.store("one") is not await shop.store("two")


async def test_equal_store_ids_are_one_store(shop: Shop) -> None:
    share(shop)
    assert await shop.store("one") is await shop.store("two")
    stores, missing = await shop.stores.all()
    assert [list(s.members) for s in stores] == [["one", "two"]]
    assert missing == ()


async def test_ten_pods_that_start_together_ask_once_for_the_store(shop: Shop) -> None:
    stuck = shop.fake("one").script("store_info", hang=True)
    asking = [asyncio.create_task(shop.store()) for _ in range(10)]
    await shop.world.clock.settle()
    asking[0].cancel()
    stuck.release()
    stores = await asyncio.gather(*asking[1:])
    assert all(store is stores[0] for store in stores)
    assert shop.fake("one").counts["store_info"] == 1


async def test_ten_pods_make_one_pull(shop: Shop) -> None:
    stuck = shop.fake("one").script("pull_image", hang=True)
    seen: list[PullProgress] = []
    pulls = [asyncio.create_task(shop.pull("app:1", on_progress=seen.append)) for _ in range(10)]
    await shop.world.clock.settle()
    store = await shop.store()
    assert list(store.pulls) == ["app:1"]
    stuck.release()
    assert len(set(await asyncio.gather(*pulls))) == 1
    assert shop.fake("one").counts["pull_image"] == 1
    assert list(store.pulls) == []
    assert seen[-1].message == "done"


async def test_a_pull_is_cancelled_only_when_no_one_waits_for_it(shop: Shop) -> None:
    stuck = shop.fake("one").script("pull_image", hang=True)
    first, second = (asyncio.create_task(shop.pull("app:1")) for _ in range(2))
    await shop.world.clock.settle()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert len((await shop.store()).pulls) == 1
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)
    assert list((await shop.store()).pulls) == []
    stuck.release()
    await shop.pull("app:1")


async def test_pulls_are_serial_per_store_and_stores_do_not_wait_for_each_other(shop: Shop) -> None:
    shop.fake("one").script("pull_image", hang=True)
    tasks = [asyncio.create_task(shop.pull(f"app:{i}")) for i in range(3)]
    await shop.world.clock.settle()
    assert shop.fake("one").counts["pull_image"] == 1
    await shop.pull("app:1", "two")
    local = [asyncio.create_task(shop.pull(name)) for name in ("/srv/d.img", "file:///srv/e.img")]
    await shop.world.clock.settle()
    assert shop.fake("one").counts["pull_image"] == 3  # files of this node do not wait for servers
    tasks += local
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_failed_pulls_back_off_ten_seconds_doubling(shop: Shop) -> None:
    shop.fake("one").script("pull_image", error=PermissionDenied("no such repository"))
    clock = shop.world.clock
    delays = []
    for _ in range(7):
        with pytest.raises(PullFailed, match="no such repository") as caught:
            await shop.pull("app:1")
        assert caught.value.reason == "ErrImagePull"
        delays.append(round(caught.value.retry_at - clock.monotonic()))
        with pytest.raises(PullBackOff, match="Back-off pulling image") as refused:
            await shop.pull("app:1")
        assert refused.value.reason == "ImagePullBackOff"
        assert refused.value.retry_at == caught.value.retry_at
        clock.advance(delays[-1])
    assert delays == [10, 20, 40, 80, 160, 300, 300]
    shop.fake("one").scripts.clear()
    await shop.pull("app:1", force=True)
    shop.fake("one").script("pull_image", error=PermissionDenied("again"))
    with pytest.raises(PullFailed) as caught:
        await shop.pull("app:1")
    assert round(caught.value.retry_at - clock.monotonic()) == 10


async def test_a_pod_that_is_made_again_does_not_inherit_the_back_off(shop: Shop) -> None:
    shop.fake("one").script("pull_image", error=PermissionDenied("no such repository"))
    with pytest.raises(PullFailed):
        await shop.pull("app:1", puller=Puller(uid=PodUid("old")))
    with pytest.raises(PullBackOff):
        await shop.pull("app:1", puller=Puller(uid=PodUid("old")))
    shop.fake("one").scripts.clear()
    assert await shop.pull("app:1", puller=Puller(uid=PodUid("new")))


async def test_credentials_are_tried_in_order_the_pods_own_first(shop: Shop) -> None:
    tried: list[str] = []
    real = shop.fake("one").pull_image

    async def picky(image, auth, sandbox, progress=None):  # type: ignore[no-untyped-def]
        tried.append(auth.username if auth else "")
        if tried[-1] != "good":
            raise PermissionDenied("unauthorised")
        return await real(image, auth, sandbox, progress)

    shop.fake("one").pull_image = picky  # type: ignore[method-assign]
    shop.credentials.auths = [ImageAuth(username="bad"), ImageAuth(username="good")]
    await shop.pull("app:1", credentials=[Credential(auth=ImageAuth(username="pods"))])
    assert tried == ["pods", "bad", "good"]


async def test_pods_share_a_pull_unless_credentials_depend_on_the_pod(shop: Shop) -> None:
    pods = [Puller(uid=PodUid(uid)) for uid in ("u1", "u2")]
    shop.credentials.personal = {"own:1"}
    for image, pulls in (("app:1", 1), ("own:1", 2)):
        before = shop.fake("one").counts["pull_image"]
        await asyncio.gather(*(shop.pull(image, puller=puller) for puller in pods))
        assert shop.fake("one").counts["pull_image"] - before == pulls


async def test_who_waits_for_credentials_keeps_no_one_from_pulling(shop: Shop) -> None:
    slow = asyncio.Event()
    real = shop.credentials.lookup

    async def lookup(image: str, puller: Puller | None) -> Sequence[Credential]:
        if image == "slow:1":
            await slow.wait()
        return await real(image, puller)

    shop.credentials.lookup = lookup  # type: ignore[method-assign, assignment]
    waiting = asyncio.create_task(shop.pull("slow:1"))
    await shop.world.clock.settle()
    assert await shop.pull("app:1")
    slow.set()
    assert await waiting


async def test_pulls_per_second_are_limited(world: World) -> None:
    from kubeletx.runtimes.images.limits import TokenBucket

    bucket = TokenBucket(world.clock, 5, 10)
    done: list[int] = []

    async def take(number: int) -> None:
        await bucket.take()
        done.append(number)

    tasks = [asyncio.create_task(take(i)) for i in range(20)]
    await world.clock.settle()
    assert len(done) == 10
    await world.clock.run_for(1.01)
    assert done == list(range(15))
    await world.clock.run_for(1.01)
    await asyncio.gather(*tasks)
    assert done == list(range(20))


async def test_a_runtime_without_images_is_unsupported_and_one_that_is_down_is_missing(world: World) -> None:
    world.traits["one"] = Traits(images=False)
    world.without["one"] = (SupportsImages,)
    world.endpoints = (world.endpoint("one"), world.endpoint("two"))
    async with shop_in(world) as shop:
        with pytest.raises(Unsupported, match="one has no image store"):
            await shop.store("one")
        shop.fake("two").backend.kill()
        await world.until(lambda: not shop.registry.get("two").state.reachable)
        stores, missing = await shop.stores.all()
        assert (stores, missing) == ((), ("two",))


async def test_a_removed_runtime_no_longer_answers_for_its_store(shop: Shop) -> None:
    share(shop)
    store = await shop.store("one")
    await shop.store("two")
    await shop.registry.remove("one")
    assert list(store.members) == ["two"]
    assert await store.list()


async def pod_on(shop: Shop, runtime: str, image_id: str) -> None:
    handle = shop.registry.get(runtime)
    spec = sandbox_of(runtime, "a")
    sandbox_id = await handle.create_sandbox(spec)
    unit = unit_of(runtime, "a")
    unit = type(unit)(
        name="main", image=ImageSpec(requested="x", ref=image_id), detail=unit.detail, labels=unit.labels
    )
    await handle.create_unit(sandbox_id, unit, spec)


async def fill(shop: Shop, *images: str) -> None:
    for image in images:
        await shop.pull(image)
        shop.world.clock.advance(60)


async def test_below_the_threshold_nothing_is_collected(shop: Shop) -> None:
    await fill(shop, "a:1", "b:1")
    shop.world.clock.advance(1000)
    assert (await shop.collector.collect(await shop.store())).images == ()


async def test_over_the_threshold_the_longest_unused_of_ours_goes(shop: Shop) -> None:
    size = 1 << 20
    await fill(shop, "a:1", "b:1", "c:1")
    await pod_on(shop, "one", await shop.pull("a:1"))
    shop.world.clock.advance(1000)
    shop.disk = FilesystemUsage(capacity_bytes=20 * size, available_bytes=int(3 * size))
    removed = await shop.collector.collect(await shop.store())
    assert [i.tags for i in removed.images] == [("b:1",)]
    assert removed.freed_bytes == size
    assert {i.tags[0] for i in shop.fake("one").backend.images.values()} == {"a:1", "c:1", "busybox"}
    assert shop.sink.reasons() == []


async def test_what_others_pulled_stays_and_too_little_is_reported(shop: Shop) -> None:
    shop.world.clock.advance(1000)
    shop.disk = FilesystemUsage(capacity_bytes=1000, available_bytes=0)
    await shop.collector.collect_all()
    assert len(shop.fake("one").backend.images) == 1
    assert shop.sink.reasons() == ["FreeDiskSpaceFailed", "FreeDiskSpaceFailed"]
    shop.disk = FilesystemUsage(capacity_bytes=0, available_bytes=0)
    await shop.collector.collect_all()
    assert shop.sink.reasons()[-1] == names.Event.INVALID_DISK_CAPACITY


async def test_an_image_that_was_there_before_our_pull_is_not_ours(shop: Shop) -> None:
    await shop.pull("busybox")
    assert shop.records.of_store((await shop.store()).id) == {}


async def test_without_an_answer_from_every_runtime_of_a_store_nothing_is_collected(shop: Shop) -> None:
    share(shop)
    store = await shop.store("one")
    await shop.store("two")
    await fill(shop, "a:1")
    shop.world.clock.advance(1000)
    shop.disk = FilesystemUsage(capacity_bytes=1000, available_bytes=0)
    shop.fake("two").script("list_units", error=Unavailable("hung"))
    await shop.collector.collect_all()
    assert len(await store.list()) == 2
    assert shop.sink.reasons() == [names.Event.IMAGE_GC_FAILED]


async def test_a_unit_of_the_other_runtime_protects_the_shared_image(shop: Shop) -> None:
    share(shop)
    store = await shop.store("one")
    await shop.store("two")
    await pod_on(shop, "two", await shop.pull("a:1"))
    await shop.pull("b:1")
    removed = await shop.collector.prune(store)
    assert [i.tags for i in removed.images] == [("b:1",)]


async def test_prune_takes_ours_and_on_request_everybodys(shop: Shop) -> None:
    await fill(shop, "a:1", "b:1")
    shop.wanted = {"one": ["docker.io/library/b:1"], "two": ["docker.io/library/a:1"]}
    store = await shop.store()
    assert [i.tags for i in (await shop.collector.prune(store)).images] == [("a:1",)]
    assert [i.tags for i in (await shop.collector.prune(store, all_unused=True)).images] == [("busybox",)]


async def test_what_is_wanted_from_one_runtime_is_kept_for_all_that_share_its_store(shop: Shop) -> None:
    share(shop)
    store = await shop.store("one")
    await shop.store("two")
    await shop.pull("a:1")
    shop.wanted = {"two": ["docker.io/library/a:1"]}
    assert (await shop.collector.prune(store)).images == ()


async def test_an_image_in_use_is_not_removed_on_request(shop: Shop) -> None:
    store = await shop.store()
    await pod_on(shop, "one", await shop.pull("a:1"))
    status = await store.find(ImageSpec(requested="a:1"))
    assert status is not None
    with pytest.raises(Conflict, match="in use"):
        await shop.collector.remove(store, status)
    other = await store.find(ImageSpec(requested="busybox"))
    assert other is not None
    await shop.collector.remove(store, other)
    assert await store.find(ImageSpec(requested="busybox")) is None


async def test_records_survive_a_restart(tmp_path: Path) -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    for round_ in range(2):
        store = await Store.open(tmp_path / "s.db", [METADATA], later_seconds=0.0)
        records = ImageRecords(store)
        await records.load()
        if round_ == 0:
            records.pulled(StoreId("s"), "i", "app:1", at)
            records.pulled(StoreId("s"), "j", "app:2", at)
            records.removed(StoreId("s"), "j")
        else:
            assert list(records.of_store(StoreId("s"))) == ["i"]
        await store.close()


async def test_a_collector_runs_periodically(shop: Shop) -> None:
    task = asyncio.create_task(shop.collector.run())
    await shop.world.clock.run_for(301)
    await shop.world.until(lambda: shop.fake("one").counts["list_images"] >= 1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
