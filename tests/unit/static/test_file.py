"""Manifests that come, change and go while their source runs."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from kubeletx.static import watch
from tests.unit.static.file_model import Running, fill, manifest, running


async def test_files_are_delivered_in_sorted_order_and_then_synced(directory: Path) -> None:
    for name in ("b.yaml", "a.yaml", "c.json"):
        (directory / name).write_text(manifest(name[0]))
    async with running(directory) as it:
        assert it.sink.calls == ["update a-node1", "update b-node1", "update c-node1", "synced"]


async def test_hidden_files_and_directories_are_left_out(directory: Path) -> None:
    (directory / ".a.yaml").write_text(manifest("a"))
    (directory / "sub").mkdir()
    (directory / "sub" / "b.yaml").write_text(manifest("b"))
    async with running(directory) as it:
        assert it.sink.calls == ["synced"]


async def test_a_static_pod_has_the_kubelets_identity(directory: Path) -> None:
    fill(directory, "a")
    async with running(directory) as it:
        (pod,) = it.sink.pods.values()
        assert pod.ref == "default/a-node1"
        assert len(pod.uid) == 32
        assert pod.spec.node_name == "Node1"
        assert pod.status.phase == "Pending"
        assert pod.metadata.annotations["kubernetes.io/config.source"] == "file"
        assert pod.metadata.annotations["kubernetes.io/config.hash"] == pod.uid
        assert "kubernetes.io/config.seen" in pod.metadata.annotations
        assert [(t.operator, t.effect) for t in pod.spec.tolerations] == [("Exists", "NoExecute")]


async def test_a_file_moved_in_is_seen_without_listing(directory: Path) -> None:
    async with running(directory) as it:
        it.write("a.yaml", manifest("a"))
        await it.sink.wait(lambda: it.sink.names == ["a-node1"])


async def test_a_file_written_in_place_is_read_when_its_writer_closes_it(directory: Path) -> None:
    async with running(directory) as it:
        with (directory / "a.yaml").open("w") as file:
            file.write(manifest("a")[:20])
            file.flush()
            it.write("b.yaml", manifest("b"))
            await it.sink.wait(lambda: "b-node1" in it.sink.names)
            file.write(manifest("a")[20:])
        await it.sink.wait(lambda: "a-node1" in it.sink.names)
        assert not it.sink.errors


async def test_links_are_read_at_once(directory: Path, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(manifest("a"))
    (tmp_path / "b.yaml").write_text(manifest("b"))
    async with running(directory) as it:
        (directory / "a.yaml").symlink_to(tmp_path / "a.yaml")
        os.link(tmp_path / "b.yaml", directory / "b.yaml")
        await it.sink.wait(lambda: it.sink.names == ["a-node1", "b-node1"])


async def test_a_changed_manifest_is_another_pod(directory: Path) -> None:
    fill(directory, "a")
    async with running(directory) as it:
        (before,) = it.sink.pods
        it.write("a.yaml", manifest("a", "registry.local/app:2"))
        await it.sink.wait(lambda: it.sink.pods.keys() - {before} != set())
        assert it.sink.calls == ["update a-node1", "synced", "remove a-node1", "update a-node1"]


async def test_a_touched_file_changes_nothing(directory: Path) -> None:
    fill(directory, "a")
    async with running(directory) as it:
        os.utime(directory / "a.yaml", (1, 1))
        it.write("b.yaml", manifest("b"))
        await it.sink.wait(lambda: "b-node1" in it.sink.names)
        assert it.sink.calls == ["update a-node1", "synced", "update b-node1"]


async def test_one_change_among_many_files_is_one_parse(directory: Path) -> None:
    for number in range(100):
        (directory / f"{number:04}.yaml").write_text(manifest(f"pod-{number:04}"))
    async with running(directory) as it:
        it.reader.origins.clear()
        it.write("0050.yaml", manifest("pod-0050", "registry.local/app:2"))
        await it.sink.wait(lambda: "remove pod-0050-node1" in it.sink.calls)
        await it.list_again()
        assert it.reader.origins == [str(directory / "0050.yaml")]


async def test_a_removed_file_removes_its_pod(directory: Path) -> None:
    fill(directory, "ab")
    async with running(directory) as it:
        (directory / "a.yaml").unlink()
        await it.settle_removals(lambda: it.sink.names == ["b-node1"])


async def test_a_file_renamed_away_and_back_keeps_its_pod(directory: Path) -> None:
    fill(directory, "a")
    async with running(directory) as it:
        (directory / "a.yaml").rename(directory / ".away")
        (directory / ".away").rename(directory / "a.yaml")
        it.write("b.yaml", manifest("b"))
        await it.settle_removals(lambda: "b-node1" in it.sink.names)
        await it.list_again()
        assert "remove a-node1" not in it.sink.calls


async def test_a_file_renamed_inside_the_directory_is_not_a_conflict(directory: Path) -> None:
    (directory / "a.yaml").write_text(manifest("web"))
    async with running(directory) as it:
        (directory / "a.yaml").rename(directory / "b.yaml")
        await it.settle_removals(lambda: it.sink.calls.count("update web-node1") == 2)
        assert it.sink.calls == ["update web-node1", "synced", "remove web-node1", "update web-node1"]
        assert not it.sink.errors


async def test_a_missing_path_is_an_empty_set_and_may_come_later(tmp_path: Path) -> None:
    path = tmp_path / "later"
    async with running(path) as it:
        assert it.sink.calls == ["synced"]
        path.mkdir()
        (path / "a.yaml").write_text(manifest("a"))
        await it.sink.wait(lambda: it.sink.names == ["a-node1"])
        it.write("b.yaml", manifest("b"))
        await it.sink.wait(lambda: it.sink.names == ["a-node1", "b-node1"])


@pytest.mark.parametrize("how", ["removed", "moved"])
async def test_a_directory_that_vanishes_keeps_its_pods_with_one_warning(directory: Path, how: str) -> None:
    fill(directory, "abc")
    async with running(directory) as it:
        with capture_logs() as logs:
            if how == "removed":
                shutil.rmtree(directory)
            else:
                directory.rename(directory.with_name("elsewhere"))
            async with asyncio.timeout(60):
                while not logs:
                    await asyncio.sleep(0)
            await it.list_again()
            await it.list_again()
        assert [line["event"] for line in logs] == ["Kept the pods of the manifest path"]
        assert it.sink.names == ["a-node1", "b-node1", "c-node1"]
        directory.mkdir()
        (directory / "b.yaml").write_text(manifest("b"))
        await it.settle_removals(lambda: it.sink.names == ["b-node1"])
        assert it.sink.calls.count("update b-node1") == 1
        it.write("d.yaml", manifest("d"))
        await it.sink.wait(lambda: it.sink.names == ["b-node1", "d-node1"])


async def test_an_invalid_file_keeps_its_pod_until_it_is_fixed_or_removed(directory: Path) -> None:
    fill(directory, "ab")
    async with running(directory) as it:
        (uid,) = (pod.uid for pod in it.sink.pods.values() if pod.name == "a-node1")
        it.write("a.yaml", "apiVersion: v1\nkind: Pod\nspec: [")
        await it.sink.wait(lambda: bool(it.sink.errors))
        text, about = it.sink.errors[str(directory / "a.yaml")]
        assert about == uid
        assert text.startswith(f"{directory / 'a.yaml'}: line 4: is not YAML")
        assert it.sink.names == ["a-node1", "b-node1"]
        it.write("a.yaml", manifest("a"))
        await it.sink.wait(lambda: not it.sink.errors)
        assert it.sink.calls[3:] == ["invalid a.yaml", "valid a.yaml"]
        it.write("a.yaml", "")
        await it.sink.wait(lambda: bool(it.sink.errors))
        (directory / "a.yaml").unlink()
        await it.settle_removals(lambda: it.sink.names == ["b-node1"])
        assert not it.sink.errors


async def test_an_invalid_file_says_so_once(directory: Path) -> None:
    (directory / "a.yaml").write_text("{")
    async with running(directory) as it:
        await it.list_again()
        await it.list_again()
        assert it.sink.calls == ["invalid a.yaml", "synced"]


async def test_of_two_files_with_one_pod_name_the_first_wins(directory: Path) -> None:
    (directory / "b.yaml").write_text(manifest("web", "registry.local/app:b"))
    (directory / "c.yaml").write_text(manifest("web", "registry.local/app:c"))
    async with running(directory) as it:
        (pod,) = it.sink.pods.values()
        assert pod.spec.containers[0].image == "registry.local/app:b"
        text, about = it.sink.errors[str(directory / "c.yaml")]
        assert about is None
        assert text == (
            f"{directory / 'c.yaml'}: metadata.name: pod default/web-node1 is already defined by "
            f"{directory / 'b.yaml'}; rename one of the two pods or remove one of the files"
        )
        it.write("a.yaml", manifest("web", "registry.local/app:a"))
        await it.sink.wait(lambda: str(directory / "b.yaml") in it.sink.errors)
        (pod,) = it.sink.pods.values()
        assert pod.spec.containers[0].image == "registry.local/app:a"
        (directory / "a.yaml").unlink()
        await it.settle_removals(lambda: str(directory / "b.yaml") not in it.sink.errors)
        (pod,) = it.sink.pods.values()
        assert pod.spec.containers[0].image == "registry.local/app:b"


async def test_a_pipe_among_the_manifests_does_not_hang_the_agent(directory: Path) -> None:
    os.mkfifo(directory / "pipe.yaml")
    (directory / "web.yaml").write_text(manifest("web"))
    async with running(directory) as it:
        assert it.sink.names == ["web-node1"]
        assert it.sink.errors[str(directory / "pipe.yaml")][0].endswith("is not a regular file; remove it")


async def test_a_dangling_link_is_refused_and_read_once_its_target_is_there(
    directory: Path, tmp_path: Path
) -> None:
    (directory / "a.yaml").symlink_to(tmp_path / "target")
    async with running(directory) as it:
        assert "cannot be read: No such file" in it.sink.errors[str(directory / "a.yaml")][0]
        (tmp_path / "target").write_text(manifest("a"))
        await it.list_again()
        assert it.sink.names == ["a-node1"]
        assert not it.sink.errors


async def test_an_unreadable_file_keeps_its_pod(directory: Path) -> None:
    fill(directory, "a")
    async with running(directory) as it:
        (directory / ".loop").symlink_to("a.yaml")
        (directory / ".loop").rename(directory / "a.yaml")
        await it.sink.wait(lambda: bool(it.sink.errors))
        assert it.sink.errors[str(directory / "a.yaml")][0].endswith(
            "cannot be read: Too many levels of symbolic links; make it readable for the agent"
        )
        assert it.sink.names == ["a-node1"]
        it.write("a.yaml", manifest("a"))
        await it.sink.wait(lambda: not it.sink.errors)
        assert it.sink.calls.count("update a-node1") == 1


async def test_a_path_that_cannot_be_read_is_not_reported_as_empty(directory: Path, tmp_path: Path) -> None:
    fill(directory, "a")
    link = tmp_path / "link"
    link.symlink_to(link)
    it = Running(link)
    task = asyncio.create_task(it.source.run(), name="file-source")
    await it.list_again()
    assert it.sink.calls == []
    link.unlink()
    link.symlink_to(directory)
    await it.list_again()
    assert it.sink.calls == ["update a-node1", "synced"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_single_file_may_be_the_path(tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(manifest("a"))
    async with running(path) as it:
        (before,) = it.sink.pods
        (tmp_path / "new").write_text(manifest("a", "registry.local/app:2"))
        (tmp_path / "new").rename(path)
        await it.sink.wait(lambda: bool(it.sink.pods.keys() - {before}))
        path.write_text('{"apiVersion": "v1", "kind": "List", "items": []}')
        await it.sink.wait(lambda: not it.sink.pods)


async def test_an_atomic_writers_link_swap_is_seen_at_once(directory: Path) -> None:
    (directory / "..1").mkdir()
    (directory / "..1" / "a.yaml").write_text(manifest("a"))
    (directory / "..data").symlink_to("..1")
    (directory / "a.yaml").symlink_to("..data/a.yaml")
    async with running(directory) as it:
        assert it.sink.names == ["a-node1"]
        (directory / "..2").mkdir()
        (directory / "..2" / "a.yaml").write_text(manifest("a", "registry.local/app:2"))
        (directory / "..new").symlink_to("..2")
        (directory / "..new").rename(directory / "..data")
        await it.sink.wait(lambda: "remove a-node1" in it.sink.calls)


async def test_a_burst_of_changes_loses_nothing(directory: Path) -> None:
    async with running(directory) as it:
        for number in range(600):
            (directory / f"{number % 20}.yaml").write_text(
                manifest(f"p{number % 20}", f"registry.local/app:{number}")
            )
        await it.sink.wait(
            lambda: (
                {pod.spec.containers[0].image for pod in it.sink.pods.values()}
                == {f"registry.local/app:{number}" for number in range(580, 600)}
            )
        )


async def test_an_overflow_of_the_kernels_queue_loses_nothing(directory: Path) -> None:
    fill(directory, "ab")
    async with running(directory) as it:
        for number in range(18_000):  # more than fs.inotify.max_queued_events, while nobody reads
            os.utime(directory / ("a.yaml" if number % 2 else "b.yaml"), (number, number))
        it.write("c.yaml", manifest("c"))
        await it.sink.wait(lambda: "c-node1" in it.sink.names)


async def test_without_inotify_changes_are_found_by_listing(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(on_events: object) -> None:
        raise OSError(24, "Too many open files", "inotify")

    monkeypatch.setattr(watch, "Inotify", refuse)  # the kernel's limit holds for all processes of a user
    with capture_logs() as logs:
        async with running(directory) as it:
            (directory / "a.yaml").write_text(manifest("a"))
            await it.list_again()
            assert it.sink.names == ["a-node1"]
            (directory / "a.yaml").unlink()
            await it.list_again()
            await it.clock.run_for(1)
            assert it.sink.names == []
    assert [line["event"] for line in logs] == ["Cannot watch manifests; listing them instead"]


async def test_an_idle_source_only_compares_signatures(directory: Path) -> None:
    fill(directory, "a")
    async with running(directory) as it:
        it.reader.origins.clear()
        await it.clock.run_for(3600)
        assert it.reader.origins == []
        assert it.sink.calls == ["update a-node1", "synced"]


async def test_a_removed_and_rewritten_directory_keeps_what_did_not_change(directory: Path) -> None:
    fill(directory, "ab")
    async with running(directory) as it:
        shutil.rmtree(directory)
        directory.mkdir()
        fill(directory, "bc")
        await it.settle_removals(lambda: it.sink.names == ["b-node1", "c-node1"])
        assert "remove b-node1" not in it.sink.calls


HALF_PAIR = '{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad", "labels": {"a": "\\ud800"}}}'


async def test_a_string_that_is_not_unicode_is_an_error_of_its_file_only(directory: Path) -> None:
    (directory / "a.json").write_text(HALF_PAIR)
    fill(directory, "b")
    async with running(directory) as it:
        assert it.sink.names == ["b-node1"]
        text, _ = it.sink.errors[str(directory / "a.json")]
        assert "has half of a surrogate pair in metadata.labels.a" in text
        (directory / "b.yaml").unlink()
        await it.settle_removals(lambda: not it.sink.pods)


async def test_a_file_name_that_is_not_utf8_is_an_error_of_that_file_only(directory: Path) -> None:
    name = Path(os.fsdecode(os.fsencode(directory) + b"/a\xff.yaml"))
    name.write_text(manifest("a"))
    fill(directory, "b")
    async with running(directory) as it:
        assert it.sink.names == ["b-node1"]
        ((origin, (text, _)),) = it.sink.errors.items()
        assert origin == f"{directory}/a\\udcff.yaml"
        assert text == f"{origin}: the name is not UTF-8; rename the file"
        name.unlink()
        await it.settle_removals(lambda: not it.sink.errors)


async def test_a_bug_in_reading_one_file_does_not_stop_the_others(directory: Path) -> None:
    fill(directory, "ab")
    async with running(directory, bug="a.yaml") as it:
        assert it.sink.names == ["b-node1"]
        assert "because of a bug: ZeroDivisionError" in it.sink.errors[str(directory / "a.yaml")][0]
