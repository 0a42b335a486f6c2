"""Manifests and their objects over a restart of the agent, which remembers them."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeletx.static.local_objects import LocalObjects
from tests.unit.static.file_model import fill, manifest, running


async def test_the_uid_survives_a_restart_of_the_agent(directory: Path) -> None:
    fill(directory, "a")
    async with running(directory) as first:
        uids = set(first.sink.pods)
    async with running(directory) as second:
        assert set(second.sink.pods) == uids


async def test_a_manifest_that_turned_bad_keeps_its_pod_across_a_restart(
    directory: Path, tmp_path: Path
) -> None:
    fill(directory, "a")
    async with running(directory, tmp_path / "memory") as first:
        (uid,) = first.sink.pods
    (directory / "a.yaml").write_text("kind: [")
    async with running(directory, tmp_path / "memory") as second:
        assert list(second.sink.pods) == [uid]
        assert second.sink.errors[str(directory / "a.yaml")][1] == uid
        (directory / "a.yaml").unlink()
        await second.settle_removals(lambda: not second.sink.pods)
    (directory / "a.yaml").write_text("kind: [")
    async with running(directory, tmp_path / "memory") as third:
        assert not third.sink.pods


async def test_a_manifest_removed_while_the_agent_was_away_does_not_come_back(
    directory: Path, tmp_path: Path
) -> None:
    fill(directory, "a")
    async with running(directory, tmp_path / "memory"):
        (directory / "a.yaml").unlink()
    async with running(directory, tmp_path / "memory") as it:
        it.write("a.yaml", "kind: [")
        await it.sink.wait(lambda: bool(it.sink.errors))
    async with running(directory, tmp_path / "memory") as it:
        assert it.sink.calls == ["invalid a.yaml", "synced"]


async def test_a_manifest_that_cannot_be_read_at_a_restart_keeps_its_pod(
    directory: Path, tmp_path: Path
) -> None:
    (tmp_path / "target").write_text(manifest("a"))
    (directory / "a.yaml").symlink_to(tmp_path / "target")
    async with running(directory, tmp_path / "memory") as first:
        (uid,) = first.sink.pods
    (tmp_path / "target").unlink()
    async with running(directory, tmp_path / "memory") as second:
        assert list(second.sink.pods) == [uid]
        assert second.sink.errors[str(directory / "a.yaml")][1] == uid
        (tmp_path / "target").write_text(manifest("a"))
        await second.list_again()
        assert list(second.sink.pods) == [uid]
        assert not second.sink.errors


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EACCES])
async def test_a_disk_that_fails_at_a_restart_costs_no_pod(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    fill(directory, "a")
    async with running(directory, tmp_path / "memory") as first:
        (uid,) = first.sink.pods
    really = {name: getattr(os, name) for name in ("stat", "lstat")}

    def failing(name: str) -> Callable[..., object]:
        def call(path: object, *args: object, **kwargs: object) -> object:
            if str(path).endswith("a.yaml"):
                raise OSError(code, os.strerror(code), path)
            return really[name](path, *args, **kwargs)

        return call

    for name in really:
        monkeypatch.setattr(os, name, failing(name))  # a disk that fails
    async with running(directory, tmp_path / "memory") as second:
        assert list(second.sink.pods) == [uid]
        assert os.strerror(code) in second.sink.errors[str(directory / "a.yaml")][0]
        monkeypatch.undo()
        await second.list_again()
        assert list(second.sink.pods) == [uid]
        assert not second.sink.errors


@pytest.mark.parametrize("is_directory", [True, False])
async def test_a_path_that_is_a_dangling_link_at_a_restart_keeps_its_pods(
    directory: Path, tmp_path: Path, is_directory: bool
) -> None:
    fill(directory, "a")
    target = directory if is_directory else directory / "a.yaml"
    link = tmp_path / "link"
    link.symlink_to(target)
    async with running(link, tmp_path / "memory") as first:
        (uid,) = first.sink.pods
    target.rename(tmp_path / "away")
    async with running(link, tmp_path / "memory") as second:
        assert list(second.sink.pods) == [uid]
        (tmp_path / "away").rename(target)
        await second.list_again()
        assert list(second.sink.pods) == [uid]
        assert not second.sink.errors


async def test_objects_of_manifests_follow_their_files(directory: Path, tmp_path: Path) -> None:
    config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, data: {a: 'VALUE'}}\n"
    both = f"{config}---\n{manifest('web')}"
    (directory / "b.yaml").write_text(both.replace("VALUE", "1"))
    objects = LocalObjects(claims=tmp_path / "claims", wait_seconds=0)

    async def value() -> str | None:
        data = await objects.find_config_map("default", "web")
        return data.text["a"] if data is not None else None

    async with running(directory, objects=objects) as it:
        uid = it.pod("web-node1").uid  # type: ignore[attr-defined] # a Pod
        assert await value() == "1"
        it.write("b.yaml", both.replace("VALUE", "2"))
        while await value() != "2":
            await asyncio.sleep(0)
        it.write("b.yaml", "{half a file")
        await it.sink.wait(lambda: bool(it.sink.errors))
        assert (await value(), it.pod("web-node1").uid) == ("2", uid)  # type: ignore[attr-defined] # a Pod
        it.write("b.yaml", both.replace("VALUE", "2"))
        await it.sink.wait(lambda: not it.sink.errors)
        it.write("a.yaml", config.replace("VALUE", "3"))
        while await value() != "3":
            await asyncio.sleep(0)
        await it.sink.wait(lambda: "already defined by" in str(it.sink.errors))
        (directory / "a.yaml").unlink()
        (directory / "b.yaml").unlink()
        await it.settle_removals(lambda: not it.sink.pods)
        assert await value() is None


async def test_an_immutable_object_keeps_its_content_across_restarts(directory: Path, tmp_path: Path) -> None:
    config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: web}, immutable: true, data: {a: '%s'}}\n"
    for written, seen in (("1", "1"), ("2", "1"), ("2", "1"), ("1", "1")):
        (directory / "a.yaml").write_text(config % written)
        objects = LocalObjects(claims=tmp_path / "claims", wait_seconds=0)
        async with running(directory, tmp_path / "memory", objects=objects) as it:
            data = await objects.find_config_map("default", "web")
            assert data is not None
            assert data.text["a"] == seen
            assert ("is immutable" in str(it.sink.errors)) == (written != seen)
    (directory / "a.yaml").unlink()
    async with running(directory, tmp_path / "memory", objects=LocalObjects(claims=tmp_path / "claims")):
        pass
    (directory / "a.yaml").write_text(config % "3")
    objects = LocalObjects(claims=tmp_path / "claims", wait_seconds=0)
    async with running(directory, tmp_path / "memory", objects=objects):
        data = await objects.find_config_map("default", "web")
        assert data is not None
        assert data.text["a"] == "3"
