"""What a machine costs, in the words of the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kubeletx_libvirt.domain.metadata import Identity
from kubeletx_libvirt.stats import allocated, interfaces_of, stats_of

from kubeletx.api import PodUid, SandboxId, UnitId, UnitStats


def test_memory_is_the_emulators_and_what_is_left_is_the_guests_word() -> None:
    one = stats(cpu_ns=7, resident_bytes=2 << 20, disk_bytes=4096, available_bytes=512 << 10)
    assert one.cpu_usage_core_ns == 7
    assert one.memory_working_set_bytes == one.memory_rss_bytes == one.memory_usage_bytes == 2 << 20
    assert one.memory_available_bytes == 512 << 10
    assert one.fs_used_bytes == 4096


def test_what_is_not_measured_is_none_and_not_zero() -> None:
    one = stats()
    assert (one.cpu_usage_core_ns, one.memory_working_set_bytes, one.fs_used_bytes) == (None, None, None)


def test_a_disk_costs_the_blocks_that_it_takes(tmp_path: Path) -> None:
    assert allocated(tmp_path / "none") is None
    assert allocated(tmp_path) is None
    with (tmp_path / "root-1.qcow2").open("wb") as file:
        file.write(b"x" * 8192)
        file.truncate(1 << 30)
    assert 8192 <= (allocated(tmp_path) or 0) < 1 << 20


def stats(**measured: Any) -> UnitStats:
    identity = Identity(
        agent_id="a",
        runtime="r",
        sandbox_id=SandboxId("s"),
        uid=PodUid("u"),
        namespace="default",
        pod="web",
        sandbox_attempt=0,
        unit="main",
        attempt=0,
        image="",
        image_ref="",
        created_at_ns=1,
    )
    return stats_of(UnitId("d"), identity, at_ns=5, **measured)


def test_the_guests_device_counts_as_the_guests_own_interface(tmp_path: Path) -> None:
    counters = tmp_path / "kxp0" / "statistics"
    counters.mkdir(parents=True)
    names = [f"{way}_{what}" for way in ("rx", "tx") for what in ("bytes", "packets", "errors", "dropped")]
    for value, name in enumerate(names):
        (counters / name).write_text(f"{value}\n")
    (eth0,) = interfaces_of("kxp0", directory=tmp_path)
    assert (eth0.name, eth0.rx_bytes, eth0.rx_dropped, eth0.tx_bytes, eth0.tx_dropped) == ("eth0", 0, 3, 4, 7)
    assert stats(interfaces=(eth0,)).interfaces == (eth0,)
    assert interfaces_of("none", directory=tmp_path) == ()
