"""The image part of the admin backend."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import pytest

from kubeletx.api import Conflict, ImageStatus, KubeletxError, NotFound, Unavailable
from kubeletx.server.views import ImageListing, PullUpdate
from tests.unit.agent.agent_model import AgentModel, a_pod


async def test_a_pull_shows_progress_and_ends_with_the_store_s_name(agent: AgentModel) -> None:
    async with agent.running() as backend:
        updates = await agent.done(collect(backend.images.pull_image("registry/new:1", "two")))
        assert updates[0].message == "pulling"
        assert updates[-1].ref
        assert {update.runtime for update in updates} == {"two"}
        listing = await backend.images.list_images()
        (new,) = [image for image in listing.items if "registry/new:1" in image.tags]
        assert (new.runtimes, new.pulled_by_us) == (("two",), True)
        assert listing.missing == ()


async def test_an_image_says_for_which_workload_types_its_store_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = AgentModel(tmp_path, names=("one", "two", "kvm"))
    async with agent.running() as backend:
        for name in ("one", "two", "kvm"):
            await agent.done(collect(backend.images.pull_image("new", name)))
        listing = await backend.images.list_images()
        assert {one.store: one.default_for for one in listing.items} == {
            "fake:one": ("container",),
            "fake:two": (),
            "fake:kvm": ("vm",),
        }
        await backend.runtimes.cordon("one")
        listing = await backend.images.list_images()
        assert {one.store: one.default_for for one in listing.items}["fake:two"] == ("container",)


async def test_a_pull_without_a_runtime_goes_to_the_default(agent: AgentModel) -> None:
    async with agent.running() as backend:
        updates = await agent.done(collect(backend.images.pull_image("new", None)))
        assert updates[-1].runtime == "one"


@pytest.mark.parametrize("name", ["one", None])
async def test_a_pull_on_a_runtime_that_does_not_answer_is_unavailable(
    agent: AgentModel, name: str | None
) -> None:
    async with agent.running() as backend:
        agent.runtimes["one"].backend.kill()
        await agent.until(lambda: not agent.parts.registry.get("one").state.reachable)
        with pytest.raises(Unavailable):
            await collect(backend.images.pull_image("new", name))


async def test_a_pull_on_a_runtime_that_never_was_reached_is_unavailable(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await backend.runtimes.add_runtime("container:three:fake://three")
        agent.runtimes["three"].backend.kill()
        with pytest.raises(Unavailable, match="three"):
            await collect(backend.images.pull_image("new", "three"))
        with pytest.raises(NotFound):
            await collect(backend.images.pull_image("new", "four"))


async def test_an_image_in_use_is_not_removed_and_the_store_that_does_not_answer_is_named(
    agent: AgentModel,
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        listing = await backend.images.list_images()
        (used,) = [i for i in listing.items if i.used_by]
        assert used.used_by == ("default/web",)
        with pytest.raises(Conflict, match="in use by a container"):
            await backend.images.remove_image("busybox", "one")
        with pytest.raises(NotFound, match="no store has image nothing"):
            await backend.images.remove_image("nothing", None)
        agent.runtimes["two"].backend.kill()
        await agent.until(lambda: not agent.parts.registry.get("two").state.reachable)
        assert (await backend.images.list_images()).missing == ("two",)


async def test_prune_removes_what_we_pulled_and_no_one_uses(agent: AgentModel) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod())
        await agent.done(collect(backend.images.pull_image("unused", "one")))
        result = await agent.done(backend.images.prune_images("one", False))
        assert [image.tags[0] for image in result.removed] == ["unused"]
        assert result.freed_bytes == sum(image.size_bytes for image in result.removed)
        await agent.done(collect(backend.images.pull_image("other", "two")))
        assert await backend.images.remove_image("other", None) == ["fake:two"]


async def test_an_image_is_removed_by_its_id_as_the_table_shows_it(agent: AgentModel) -> None:
    async with agent.running() as backend:
        fake = agent.runtimes["one"].backend
        for name, digits in (("a", "abcd12" * 10), ("b", "abcd13" * 10)):
            fake.images[f"sha256:{digits}"] = ImageStatus(id=f"sha256:{digits}", ref=name, tags=(name,))
        with pytest.raises(Conflict, match=r"means several images: .* give more digits"):
            await backend.images.remove_image("abcd1", None)
        assert await backend.images.remove_image("abcd12abcd12a", None) == ["fake:one"]
        assert tags(await backend.images.list_images()) == {"busybox", "b"}


async def test_a_pull_that_fails_says_why(agent: AgentModel) -> None:
    async with agent.running() as backend:
        agent.runtimes["one"].script("pull_image", error=NotFound("no such image"))
        with pytest.raises(KubeletxError, match="no such image"):
            await agent.done(collect(backend.images.pull_image("gone", "one")))


async def test_a_watch_shows_pulls_removals_and_what_others_did(agent: AgentModel) -> None:
    async with agent.running() as backend, aclosing(backend.images.watch_images()) as listings:  # type: ignore[type-var]
        assert tags(await anext(listings)) == {"busybox"}
        await agent.done(collect(backend.images.pull_image("new", "one")))
        assert tags(await agent.done(anext(listings))) == {"busybox", "new"}
        await backend.images.remove_image("new", "one")
        assert tags(await agent.done(anext(listings))) == {"busybox"}
        agent.runtimes["two"].backend.add_image("foreign")
        assert tags(await agent.done(anext(listings))) == {"busybox", "foreign"}


def tags(listing: ImageListing) -> set[str]:
    return {tag for image in listing.items for tag in image.tags}


async def collect(updates: AsyncIterator[PullUpdate]) -> list[PullUpdate]:
    return [update async for update in updates]
