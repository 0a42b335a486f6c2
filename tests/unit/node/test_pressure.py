from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import InvalidConfig
from kubeletx.node.pressure import (
    SIGNALS,
    PressureMonitor,
    SeenAt,
    Signal,
    check_thresholds,
    exceeded,
    pressure,
    read_signals,
    step,
)
from kubeletx.node.readiness import Pressure

MI = 1 << 20


def test_a_signal_below_its_threshold_is_exceeded() -> None:
    signals = {
        "memory.available": Signal(available=99 * MI, capacity=1000 * MI),
        "nodefs.available": Signal(available=11, capacity=100),
    }
    thresholds = {"memory.available": "100Mi", "nodefs.available": "10%", "imagefs.available": "15%"}
    assert exceeded(signals, thresholds) == {"memory.available"}


def test_a_pressure_is_held_after_it_ended() -> None:
    seen = step(SeenAt(), frozenset({"imagefs.inodesFree"}), mono=10)
    assert pressure(seen, mono=10) == Pressure(disk=True)
    seen = step(seen, frozenset(), mono=100)
    assert pressure(seen, mono=309) == Pressure(disk=True)
    assert pressure(seen, mono=310) == Pressure()


@given(st.lists(st.tuples(st.floats(0.1, 100), st.sets(st.sampled_from(sorted(SIGNALS)))), max_size=20))
def test_what_is_short_now_is_always_reported(looks: list[tuple[float, set[str]]]) -> None:
    seen, mono = SeenAt(), 0.0
    for wait, short_of in looks:
        mono += wait
        seen = step(seen, frozenset(short_of), mono=mono)
        now = pressure(seen, mono=mono, hold_seconds=0)
        assert now.memory == ("memory.available" in short_of)
        assert now.pids == ("pid.available" in short_of)
        assert now.disk == any("fs." in name for name in short_of)


@pytest.mark.parametrize(
    "bad", [{"cpu.available": "1"}, {"memory.available": "much"}, {"nodefs.available": "x%"}]
)
def test_thresholds_that_make_no_sense_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(InvalidConfig, match="evictionHard"):
        check_thresholds(bad)


def test_this_machine_can_be_measured(tmp_path: Path) -> None:
    found = read_signals(tmp_path, [str(tmp_path)])
    assert {"memory.available", "nodefs.available", "imagefs.available", "pid.available"} <= found.keys()
    assert all(0 <= signal.available <= signal.capacity for signal in found.values())


def test_what_cannot_be_measured_is_left_out(tmp_path: Path) -> None:
    assert read_signals(tmp_path / "missing", ["/no/such"], proc=tmp_path) == {}


def test_the_monitor_reports_what_the_kernel_says(tmp_path: Path) -> None:
    proc = tmp_path / "proc"
    (proc / "sys/kernel").mkdir(parents=True)
    (proc / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 10 kB\n")
    (proc / "loadavg").write_text("0.1 0.1 0.1 1/95 7\n")
    (proc / "sys/kernel/pid_max").write_text("100\n")
    (proc / "sys/kernel/threads-max").write_text("200\n")
    monitor = PressureMonitor(
        tmp_path, {"memory.available": "5%", "pid.available": "10%", "nodefs.available": "0%"}, proc=proc
    )
    assert monitor.look(mono=1) == Pressure(memory=True, pids=True)
