"""Volumes that the mount table shows, without journals."""

from __future__ import annotations

from kubeletx_flexvolume.agent.adopt import find_volumes, rebuild_journal
from kubeletx_flexvolume.agent.journal import Mark
from kubeletx_flexvolume.backends.registry import Backends

from kubeletx.linux.mounts import MountPoint
from plugins.flexvolume.tests.agent.agent_model import BOOT, DEVICE, NODE, ROOT, Faults, ModelBackend, target

BACKENDS = Backends((ModelBackend(Faults()),))


def mount(path: str, *, device: str = "7:0", source: str = DEVICE, read_only: bool = False) -> MountPoint:
    options = ("ro",) if read_only else ("rw",)
    return MountPoint(target=path, root="/", device=device, fs_type="ext4", source=source, options=options)


def test_a_volume_is_found_with_all_its_pods() -> None:
    one, two = target("u1"), target("u2")
    table = (
        mount("/"),
        mount(one.global_directory),
        mount(one.path),
        mount(two.path, read_only=True),
        mount(target("u3", "pv-2").path, device="7:1"),
        mount(f"{ROOT}/pods/u4/volumes/kubernetes.io~rbd/pv-9"),
        mount(f"{ROOT}/plugins/kubeletx.io/storage/mounts/Not-A-Name"),
    )
    first, second = find_volumes(table, [ROOT])
    assert (first.name, [found.pod_uid for found, _ in first.binds]) == ("pv-1", ["u1", "u2"])
    assert (second.name, second.base, len(second.binds)) == ("pv-2", None, 1)


def test_a_volume_has_the_name_of_its_mount_for_the_node() -> None:
    base = f"{ROOT}/plugins/kubeletx.io/storage/mounts/shop-data"
    (found,) = find_volumes((mount(base), mount(target("u1", "data").path)), [ROOT])
    assert found.name == "shop-data"
    made = rebuild_journal(found, BACKENDS, node=NODE, boot_id=BOOT)
    assert made.global_dir == base
    assert made.uses[0].holder.mount_dir == target("u1", "data").path


def test_a_rebuilt_journal_has_everything_that_may_exist() -> None:
    table = (mount(target().global_directory), mount(target().path, read_only=True))
    (found,) = find_volumes(table, [ROOT])
    made = rebuild_journal(found, BACKENDS, node=NODE, boot_id=BOOT)
    (use,) = made.uses
    assert (made.volume.backend, made.attached, made.mounted, made.is_writable) == (
        "model",
        Mark.MAY,
        Mark.YES,
        True,
    )
    assert (use.taken, use.bound, use.is_mounted, use.holder.read_only) == (Mark.MAY, Mark.YES, True, True)
    assert use.holder.key == (NODE, BOOT, target().path)


def test_a_device_that_no_backend_knows_is_not_detached() -> None:
    (found,) = find_volumes((mount(target().path, source="/dev/sdz"),), [ROOT])
    made = rebuild_journal(found, BACKENDS, node=NODE, boot_id=BOOT)
    assert (made.volume.backend, made.attached, made.mounted) == ("", Mark.NO, Mark.NO)


def test_of_mounts_on_one_place_only_the_topmost_counts() -> None:
    table = (mount(target().path, source="/dev/old"), mount(target().path))
    (found,) = find_volumes(table, [ROOT])
    assert [entry.source for _, entry in found.binds] == [DEVICE]
