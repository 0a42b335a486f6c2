"""Pods and images that are present: who may use what another pod pulled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import ImageAuth, ImageSpec, ImageStatus, PermissionDenied, PodUid, StoreId
from kubeletx.runtimes.images.access_records import METADATA, AccessRecords
from kubeletx.runtimes.images.settings import PullSettings
from kubeletx.runtimes.images.store import PullFailed
from kubeletx.runtimes.images.stores import ImageStores
from kubeletx.runtimes.images.verification import (
    ALWAYS,
    MAX_RECORDED,
    NEVER,
    NEVER_ALLOWLISTED,
    NEVER_PRELOADED,
    Access,
    AccountUse,
    Credential,
    Puller,
    SecretUse,
    VerificationSettings,
    check_pattern,
    digest_of,
)
from kubeletx.store import Store
from tests.unit.runtimes.conftest import World

from .test_stores import Shop, shop_in

IMAGE = "r.example/team/app:1"
GOOD = ImageAuth(username="u", password="right")
POD, OTHER = Puller(uid=PodUid("u1")), Puller(uid=PodUid("u2"))


def secret(
    name: str = "regcred", auth: ImageAuth = GOOD, *, namespace: str = "a", uid: str = ""
) -> Credential:
    use = SecretUse(uid=uid or f"uid-{name}", namespace=namespace, name=name, digest=digest_of(auth))
    return Credential(auth=auth, origin=use)


def close_registry(shop: Shop) -> None:
    """The registry accepts only `GOOD`."""
    fake = shop.fake("one")
    pull = fake.pull_image

    async def gated(image: ImageSpec, auth: ImageAuth | None, *more: object) -> str:
        if auth != GOOD:
            raise PermissionDenied("401 Unauthorized")
        return await pull(image, auth, *more)  # type: ignore[arg-type]

    fake.pull_image = gated  # type: ignore[method-assign,assignment]


def with_policy(shop: Shop, policy: str, *allowlist: str) -> Shop:
    settings = VerificationSettings(policy=policy, allowlist=allowlist)
    shop.stores = ImageStores(
        shop.registry,
        clock=shop.world.clock,
        records=shop.records,
        credentials=shop.credentials,
        settings=PullSettings(qps=0, verification=settings),
    )
    return shop


@pytest.fixture
async def shop(world: World) -> AsyncIterator[Shop]:
    world.endpoints = (world.endpoint("one"), world.endpoint("two"))
    async with shop_in(world) as shop:
        close_registry(shop)
        yield shop


async def may_use(shop: Shop, *credentials: Credential, image: str = IMAGE, puller: Puller = OTHER) -> bool:
    store = await shop.store()
    present = await store.find(ImageSpec(requested=image))
    assert present is not None
    return await store.may_use(ImageSpec(requested=image), present, credentials=credentials, puller=puller)


async def test_a_pod_without_the_secret_may_not_use_what_another_one_pulled(shop: Shop) -> None:
    await shop.pull(IMAGE, credentials=[secret()], puller=POD)
    assert not await may_use(shop)
    assert not await may_use(shop, secret("other", ImageAuth(username="u", password="wrong"), uid="x"))
    assert await may_use(shop, secret())
    with pytest.raises(PullFailed, match="401"):
        await shop.pull(IMAGE, puller=OTHER)
    assert not await may_use(shop)


async def test_the_same_credential_in_another_secret_and_new_content_of_the_same_secret_open_it(
    shop: Shop,
) -> None:
    await shop.pull(IMAGE, credentials=[secret()], puller=POD)
    assert await may_use(shop, secret("copy", namespace="b"))
    rotated = ImageAuth(username="u", password="rotated")
    assert await may_use(shop, secret(auth=rotated))
    assert await may_use(shop, secret("another", rotated, namespace="c"))
    assert not await may_use(shop, secret("regcred", ImageAuth(username="x"), namespace="b", uid="uid-x"))


async def test_what_was_pulled_without_a_credential_or_with_the_nodes_is_open_to_all(shop: Shop) -> None:
    shop.credentials.auths = [GOOD]
    await shop.pull(IMAGE, puller=POD)
    assert await may_use(shop)


async def test_the_token_of_a_service_account_opens_it_for_pods_of_that_account(shop: Shop) -> None:
    shop.credentials.auths = [GOOD]
    shop.credentials.account = AccountUse(uid="1", namespace="a", name="builder")
    await shop.pull(IMAGE, puller=POD)
    assert await may_use(shop)
    shop.credentials.account = AccountUse(uid="2", namespace="a", name="builder")
    assert not await may_use(shop)


async def test_the_right_to_one_name_is_not_a_right_to_another_of_the_same_image(shop: Shop) -> None:
    await shop.pull(IMAGE, credentials=[secret()], puller=POD)
    store = await shop.store()
    present = await store.find(ImageSpec(requested=IMAGE))
    assert present is not None
    other = ImageSpec(requested="r.example/other/app:1")
    assert not await store.may_use(other, present, credentials=[secret()])
    assert await store.may_use(ImageSpec(requested="r.example/team/app:2"), present, credentials=[secret()])


@pytest.mark.parametrize(
    ("policy", "preloaded", "pulled"),
    [
        (NEVER, True, True),
        (NEVER_PRELOADED, True, False),
        (NEVER_ALLOWLISTED, False, False),
        (ALWAYS, False, False),
    ],
)
async def test_the_policy_says_which_images_are_verified(
    shop: Shop, policy: str, preloaded: bool, pulled: bool
) -> None:
    with_policy(shop, policy)
    await shop.pull("r.example/operators:1", credentials=[secret()])  # for no pod
    await shop.pull(IMAGE, credentials=[secret()], puller=POD)
    assert await may_use(shop, image="r.example/operators:1") is preloaded
    assert await may_use(shop) is pulled


@pytest.mark.parametrize("item", ["r.example/team/app", "r.example/team/*", "r.example/*"])
async def test_images_of_the_allowlist_are_not_verified(shop: Shop, item: str) -> None:
    with_policy(shop, NEVER_ALLOWLISTED, item)
    await shop.pull(IMAGE, credentials=[secret()], puller=POD)
    assert await may_use(shop)
    with_policy(shop, NEVER_ALLOWLISTED, "r.example/te", "r.example/team/ap", "example/*")
    assert not await may_use(shop)


async def test_the_records_survive_a_restart(world: World) -> None:
    world.endpoints = (world.endpoint("one"), world.endpoint("two"))
    async with shop_in(world) as shop:
        close_registry(shop)
        await shop.pull(IMAGE, credentials=[secret()], puller=POD)
        assert await may_use(shop, secret("copy", namespace="b"))
    async with shop_in(world) as shop:
        assert await may_use(shop, secret("copy", ImageAuth(username="new"), namespace="b"))
        assert not await may_use(shop)
    assert GOOD.password.encode() not in b"".join(one.read_bytes() for one in world.root.glob("images.db*"))


async def test_a_credential_in_the_url_of_an_image_is_not_written(world: World) -> None:
    world.endpoints = (world.endpoint("one"), world.endpoint("two"))
    image = "https://user:hunter2@files.example/disk.img?token=hunter3"
    async with shop_in(world) as shop:
        store = await shop.store()
        access = shop.records.access
        await access.begin(store.id, image)
        assert access.is_pulled(store.id, "i", image)
        await access.succeed(store.id, "i", image, image, None)
    async with shop_in(world) as shop:
        assert shop.records.access.find(store.id, "i", image) == Access(node_wide=True)
        assert shop.records.access.find(store.id, "i", "https://files.example/disk.img") is None
    assert b"hunter" not in b"".join(one.read_bytes() for one in world.root.glob("images.db*"))


async def test_an_image_whose_pull_was_cut_off_never_counts_as_preloaded(world: World) -> None:
    world.endpoints = (world.endpoint("one"), world.endpoint("two"))
    async with shop_in(world) as shop:
        await shop.pull(IMAGE)  # what the runtime finished after the agent had died
        await shop.records.access.begin((await shop.store()).id, IMAGE)
    async with shop_in(world) as shop:
        assert not await may_use(shop)
        await shop.collector.collect(await shop.store())
        assert not await may_use(shop)
    async with shop_in(world) as shop:
        assert not await may_use(shop)


async def test_a_pull_that_was_cancelled_keeps_its_note_and_one_that_failed_does_not(shop: Shop) -> None:
    store, access = await shop.store(), shop.records.access
    with pytest.raises(PullFailed):
        await shop.pull(IMAGE, puller=POD)
    assert not access.is_pulled(store.id, "", IMAGE)
    reached = asyncio.Event()

    async def hang(*_: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    shop.fake("one").pull_image = hang  # type: ignore[method-assign,assignment]
    pulling = asyncio.create_task(shop.pull(IMAGE, credentials=[secret()], puller=OTHER))
    await reached.wait()
    pulling.cancel()
    await asyncio.gather(pulling, return_exceptions=True)
    await shop.stores.close()
    assert access.is_pulled(store.id, "", IMAGE)


async def test_a_pull_that_begins_soon_after_one_that_failed_is_recorded_on_disk(tmp_path: Path) -> None:
    store = await Store.open(tmp_path / "s.db", [METADATA], later_seconds=60)
    access, stored = AccessRecords(store), AccessRecords(store)
    await access.begin(StoreId("s"), IMAGE)
    access.fail(StoreId("s"), IMAGE, is_known_absent=True)
    await access.begin(StoreId("s"), IMAGE)
    await stored.load()
    assert stored.is_pulled(StoreId("s"), "", IMAGE)
    await store.close()


async def test_a_pull_that_fails_while_another_one_begins_does_not_delete_the_record_of_that(
    tmp_path: Path,
) -> None:
    store = await Store.open(tmp_path / "s.db", [METADATA], later_seconds=60)
    access, stored = AccessRecords(store), AccessRecords(store)

    async def begin_and_fail() -> None:
        await access.begin(StoreId("s"), IMAGE)
        access.fail(StoreId("s"), IMAGE, is_known_absent=True)

    await asyncio.gather(begin_and_fail(), access.begin(StoreId("s"), IMAGE))
    await stored.load()
    assert stored.is_pulled(StoreId("s"), "", IMAGE)
    await store.close()


async def test_a_pull_whose_begin_cannot_be_written_fails(shop: Shop) -> None:
    await shop.store()
    await shop.database.read(lambda connection: connection.exec_driver_sql("PRAGMA query_only = 1"))
    with pytest.raises(PullFailed, match="not writable"):
        await shop.pull(IMAGE, credentials=[secret()], puller=POD)
    assert shop.fake("one").counts["pull_image"] == 0


async def test_records_of_images_that_are_gone_are_forgotten(shop: Shop) -> None:
    await shop.pull(IMAGE, credentials=[secret()], puller=POD)
    store = await shop.store()
    present = await store.find(ImageSpec(requested=IMAGE))
    assert present is not None
    shop.fake("one").backend.images.clear()
    await shop.collector.collect(store)
    assert not shop.records.access.is_pulled(store.id, present.id, IMAGE)


@pytest.mark.parametrize("was_pulled_before", [False, True])
async def test_a_pull_that_ends_while_images_are_listed_keeps_its_records(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, was_pulled_before: bool
) -> None:
    store = await shop.store()
    if was_pulled_before:
        await shop.pull(IMAGE, credentials=[secret()], puller=POD)
        shop.fake("one").backend.images.clear()
    list_images = store.list

    async def list_then_pull() -> Sequence[ImageStatus]:
        images = await list_images()
        await shop.pull(IMAGE, credentials=[secret()], puller=POD)
        return images

    monkeypatch.setattr(store, "list", list_then_pull)
    await shop.collector.collect(store)
    present = await store.find(ImageSpec(requested=IMAGE))
    assert present is not None
    assert shop.records.find(store.id, present.id) is not None
    assert not await may_use(shop)


@given(st.lists(st.integers(0, 300), max_size=300))
def test_no_more_than_a_hundred_secrets_are_recorded_and_the_newest_stay(numbers: Sequence[int]) -> None:
    access, newest = Access(), None
    for number in numbers:
        newest = SecretUse(uid=str(number), namespace="a", name="s", digest=str(number))
        access = access.with_origin(newest)
        assert access.find([newest]) == (newest, True)
    assert len(access.secrets) == min(MAX_RECORDED, len(access.secrets))
    assert len({one.uid for one in access.secrets}) == len(access.secrets)


def test_a_record_without_credentials_is_open_to_no_pod() -> None:
    nameless = SecretUse(uid="", namespace="", name="", digest="")
    assert Access().find([None, nameless]) == (None, False)
    assert Access(secrets=(nameless,)).find([nameless]) == (None, False)


@pytest.mark.parametrize(
    "pattern", ["r.example/app", "r.example/*", "r.example:5000/a/*", "docker.io/library/busybox"]
)
def test_names_in_full_and_beginnings_are_allowed_in_the_list(pattern: str) -> None:
    assert check_pattern(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    ["", "*", "/*", "busybox", "r.example/app:1", "r.example/*/app", "r.example/a*", " r.example/app"],
)
def test_other_patterns_are_refused_with_words(pattern: str) -> None:
    assert check_pattern(pattern)
