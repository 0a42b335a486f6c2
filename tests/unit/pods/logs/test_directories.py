from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

import pytest

from kubeletx.api import InvalidPod, PodUid, UnitId
from kubeletx.pods.logs.directories import PodDirectories
from tests.unit.pods.environment_model import make_node, make_pod


@pytest.fixture
def directories(tmp_path: Path) -> PodDirectories:
    node = make_node(root_dir=tmp_path / "root", pod_logs_dir=tmp_path / "logs")
    return PodDirectories(node, links_dir=tmp_path / "links")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def container_logs(tmp_path: Path) -> Path:
    """The log directory of container c, as a runtime makes it."""
    path = tmp_path / "logs/shop_web_u1/c"
    path.mkdir(parents=True)
    return path


def test_a_pod_gets_its_directories_with_the_kubelets_modes(directories, tmp_path):
    pod = make_pod()
    directories.make(pod)
    directories.make(pod)
    assert mode(tmp_path / "root/pods/u1/volumes") == mode(tmp_path / "root/pods/u1/plugins") == 0o750
    assert mode(tmp_path / "logs/shop_web_u1") == 0o755


def test_the_restart_count_is_read_from_old_logs(directories, tmp_path):
    pod = make_pod()
    assert directories.highest_attempt(pod, "c") is None
    logs = container_logs(tmp_path)
    assert directories.highest_attempt(pod, "c") is None
    for name in ("0.log", "9.log", "10.log.20260101-000000.gz", "x.log", "11.raw"):
        (logs / name).write_text("line")
    (logs / "12.log").touch()
    assert directories.highest_attempt(pod, "c") == 10
    (logs.parent / "silent").mkdir()
    assert directories.earlier_runs(pod) == {"c": 11}


def test_collectors_find_a_link_to_the_log(directories, tmp_path):
    pod = make_pod()
    logs = container_logs(tmp_path)
    (logs / "0.log").write_text("text")
    for _ in range(2):
        directories.link_log(pod, "c", UnitId("abc"), "c/0.log")
    link = tmp_path / "links/web_shop_c-abc.log"
    assert link.read_text() == "text"
    foreign = tmp_path / "links/other.log"
    foreign.symlink_to(tmp_path / "logs/shop_other_u2/c/0.log")
    directories.remove_attempt(pod, "c", 1)
    assert link.is_symlink()
    directories.remove_logs(PodUid("u1"))
    assert not link.is_symlink()
    assert foreign.is_symlink()


def test_a_long_name_of_a_link_is_cut(directories, tmp_path):
    pod = make_pod(name="n" * 250)
    directories.link_log(pod, "c", UnitId("i" * 64), "c/0.log")
    assert [len(one.name) for one in (tmp_path / "links").iterdir()] == [255]


def test_no_links_are_made_beside_a_directory_of_our_own(tmp_path):
    node = make_node(root_dir=tmp_path, pod_logs_dir=tmp_path / "logs")
    PodDirectories(node).link_log(make_pod(), "c", UnitId("i"), "c/0.log")
    assert list(tmp_path.iterdir()) == []


def test_logs_of_one_pod_are_removed_and_others_stay(directories, tmp_path):
    for uid in ("u1", "u2"):
        directories.make(make_pod(uid=uid))
    (tmp_path / "logs" / "not-ours_u1").mkdir()
    directories.remove_logs(PodUid("u1"))
    directories.remove_logs(PodUid("u1"))
    assert sorted(one.name for one in (tmp_path / "logs").iterdir()) == ["not-ours_u1", "shop_web_u2"]


def test_logs_go_at_once_though_someone_still_writes_them_by_name(directories, tmp_path, monkeypatch):
    logs = container_logs(tmp_path)
    unlink = os.unlink

    def unlink_and_see_it_come_back(name: str, *, dir_fd: int | None = None) -> None:
        unlink(name, dir_fd=dir_fd)
        with contextlib.suppress(FileNotFoundError):
            (logs / "0.raw.offset").write_text("{}")

    (logs / "0.raw.offset").write_text("{}")
    monkeypatch.setattr(os, "unlink", unlink_and_see_it_come_back)
    directories.remove_logs(PodUid("u1"))
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_removal_that_was_cut_off_is_finished_by_the_next(directories, tmp_path):
    (tmp_path / "logs/.going__u1/c").mkdir(parents=True)
    container_logs(tmp_path)
    directories.remove_logs(PodUid("u1"))
    assert list((tmp_path / "logs").iterdir()) == []


def test_one_attempt_can_be_forgotten(directories, tmp_path):
    pod = make_pod()
    logs = container_logs(tmp_path)
    for name in ("0.log", "0.log.20260101-000000.gz", "1.log"):
        (logs / name).touch()
    directories.link_log(pod, "c", UnitId("abc"), "c/0.log")
    directories.remove_attempt(pod, "c", 0)
    directories.remove_attempt(pod, "never-started", 0)
    assert list((tmp_path / "links").iterdir()) == []
    assert [one.name for one in logs.iterdir()] == ["1.log"]


def test_a_container_name_never_leads_elsewhere(directories):
    with pytest.raises(InvalidPod, match="cannot be part of a path"):
        directories.highest_attempt(make_pod(), "../x")
