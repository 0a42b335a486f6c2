"""The flow of one node, in simulated time."""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.remedy.model import MethodResult, RemedyOutcome, RemedySettings
from tests.unit.remedy.trial import READY_FENCE, Trial, failing

DISK_THEN_READY = READY_FENCE.replace(
    "thresholdConfigs:\n",
    """thresholdConfigs:
- nodeConditionType: DiskPressure
  nodeConditionStatus: true
  nodeConditionPeriod: 5s
  remedy1:
  - name: cordon
""",
)


def test_a_lost_node_is_isolated_then_powered_off_and_its_pods_go_last() -> None:
    trial = Trial()
    trial.run(60)
    assert not trial.fences
    trial.set("n1", "Unknown")
    trial.run(3)
    assert (trial.state(), trial.calls) == ("Isolation/New", [])
    trial.run(3)
    assert (trial.state(), trial.calls) == ("Isolation/Done", ["n1/fc-off"])
    trial.run(295)
    assert trial.calls == ["n1/fc-off"]
    trial.run(10)
    assert trial.calls == ["n1/fc-off", "n1/pdu-off", "n1/pdu-on"]
    assert (trial.state(), trial.released) == ("Power-Management/Done", ["n1", "n1"])
    trial.set("n1", "True", reboots=True)
    trial.run(29)
    assert trial.state() == "Recovery/New"
    trial.run(5)
    assert trial.calls[3:] == ["n1/fc-on", "n1/restore"]
    assert trial.state() == "Recovery/Final"


def test_a_node_that_is_well_before_its_period_ends_gets_no_treatment() -> None:
    trial = Trial()
    trial.set("n1", "False")
    trial.run(4)
    trial.set("n1", "True")
    trial.run(60)
    assert (trial.state(), trial.calls, trial.released) == ("Isolation/Final", [], [])


def test_a_node_that_is_ready_again_before_power_is_not_switched_off() -> None:
    trial = Trial(settings=RemedySettings(power_wait=60))
    trial.set("n1", "Unknown")
    trial.run(30)
    trial.set("n1", "True", reboots=True)
    trial.run(120)
    assert trial.calls == ["n1/fc-off", "n1/fc-on", "n1/restore"]
    assert trial.state() == "Recovery/Final"


def test_isolation_is_not_lifted_while_the_node_may_run_what_was_released() -> None:
    trial = Trial(settings=RemedySettings(power_wait=600))
    trial.set("n1", "Unknown")
    trial.run(30)
    assert trial.released == ["n1"]  # by the proof of its storage
    trial.set("n1", "True")
    trial.run(120)
    assert (trial.state(), trial.calls) == ("Recovery/New", ["n1/fc-off"])
    trial.set("n1", "True", reboots=True)
    trial.run(40)
    assert trial.state() == "Recovery/Final"


def test_a_failed_step_is_repeated_then_the_flow_and_then_it_ends_for_good() -> None:
    settings = RemedySettings(retries=2, retry_wait=10, restarts=1, power_wait=20)
    trial = Trial(settings=settings)
    trial.outcomes["pdu-off"] = failing()
    trial.set("n1", "Unknown")
    trial.run(400)
    assert trial.calls.count("n1/pdu-off") == 6  # three times in each of two flows
    assert trial.fences["n1"].flow.terminal
    trial.run(600)
    assert trial.calls.count("n1/pdu-off") == 6
    assert "fc-off" not in trial.calls[-1]
    trial.set("n1", "True", reboots=True)
    trial.run(60)
    assert trial.state() == "Recovery/Final"


def test_an_unknown_result_is_not_a_fence_and_the_device_is_asked_before_it_is_repeated() -> None:
    trial = Trial(settings=RemedySettings(power_wait=20, retry_wait=10))
    repeats: list[bool] = []

    def unknown(is_repeat: bool) -> RemedyOutcome:
        repeats.append(is_repeat)
        return RemedyOutcome(result=MethodResult.UNKNOWN, message="the connection broke")

    trial.outcomes["pdu-off"] = unknown
    trial.set("n1", "Unknown")
    trial.run(45)
    assert repeats[:2] == [False, True]
    assert all(repeats[1:])
    assert trial.released == ["n1"]  # by the storage fence only


def test_flips_of_the_condition_during_a_reboot_start_no_second_remedy() -> None:
    trial = Trial(settings=RemedySettings(power_wait=20, settle_time=300))
    trial.set("n1", "Unknown")
    trial.run(30)
    calls = list(trial.calls)
    for status in ("True", "False", "Unknown", "False"):
        trial.set("n1", status, reboots=True)
        trial.run(15)
    assert trial.calls == calls
    trial.set("n1", "True")
    trial.run(60)
    assert trial.state() == "Recovery/Final"


def test_another_node_of_the_same_name_is_not_treated_by_the_old_flow() -> None:
    trial = Trial()
    trial.set("n1", "Unknown")
    trial.run(30)
    node = trial.nodes["n1"]
    trial.nodes["n1"] = replace(node, metadata=replace(node.metadata, uid="other"))
    trial.set("n1", "True")
    calls = list(trial.calls)
    trial.run(400)
    assert (trial.calls, trial.fences["n1"].is_over) == (calls, True)


def test_a_recovery_that_fails_is_tried_until_the_node_is_released() -> None:
    trial = Trial(settings=RemedySettings(power_wait=20, settle_time=60, quiet_time=10, retry_wait=10))
    trial.outcomes["fc-on"] = failing()
    trial.set("n1", "Unknown")
    trial.run(40)
    trial.set("n1", "True", reboots=True)
    trial.run(100)
    assert trial.fences["n1"].flow.terminal
    del trial.outcomes["fc-on"]
    trial.run(100)
    assert trial.state() == "Recovery/Final"


def test_a_lost_node_that_is_treated_for_a_full_disk_is_fenced() -> None:
    trial = Trial(text=DISK_THEN_READY)
    trial.set("n1", "True", "DiskPressure")
    trial.run(30)
    assert trial.calls == ["n1/mark-unschedulable"]
    trial.set("n1", "Unknown")
    trial.run(320)
    assert trial.calls[1:] == ["n1/fc-off", "n1/pdu-off", "n1/pdu-on"]
    assert trial.fences["n1"].flow.reasons == ("DiskPressure=True", "Ready=Unknown")


def test_a_flow_with_a_recovery_of_its_own_is_not_taken_over() -> None:
    job = """remedyConfigs:
- name: repair
  podTemplate: {spec: {containers: [{name: main, image: repair}]}}
"""
    disk = DISK_THEN_READY.replace("  - name: cordon\n", "  - name: cordon\n  recovery: {name: repair}\n")
    trial = Trial(text=disk + job)
    trial.set("n1", "True", "DiskPressure")
    trial.run(30)
    trial.set("n1", "Unknown")
    trial.run(60)
    assert trial.calls == ["n1/mark-unschedulable"]
    trial.set("n1", "False", "DiskPressure")
    trial.set("n1", "True")
    trial.run(60)
    assert trial.calls[1:] == ["n1/repair", "n1/mark-schedulable", "n1/restore"]


def test_a_flow_goes_on_when_a_threshold_is_written_above_its_own() -> None:
    trial = Trial()
    trial.set("n1", "Unknown")
    trial.run(30)
    trial.configured = Trial(text=DISK_THEN_READY).configured
    trial.run(300)
    assert trial.calls == ["n1/fc-off", "n1/pdu-off", "n1/pdu-on"]
