"""The flow of one node, in simulated time."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubeletx.remedy.model import FenceProof, MethodResult, RemedyOutcome, RemedySettings
from tests.unit.remedy.trial import FENCE_CONFIG, READY_FENCE, Trial, failing

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


JOB = """remedyConfigs:
- name: repair
  podTemplate: {spec: {containers: [{name: main, image: repair}]}}
"""


def test_a_job_among_the_methods_of_a_fence_proves_nothing() -> None:
    trial = Trial(
        text=READY_FENCE + JOB, maps={"fence-config-n1": {"config.properties": "isolation=repair\n"}}
    )
    trial.set("n1", "Unknown")
    trial.run(30)
    assert (trial.calls, trial.released) == (["n1/repair"], [])


def test_a_flow_with_a_recovery_of_its_own_is_not_taken_over() -> None:
    disk = DISK_THEN_READY.replace("  - name: cordon\n", "  - name: cordon\n  recovery: {name: repair}\n")
    trial = Trial(text=disk + JOB)
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


QUICK = RemedySettings(power_wait=20, settle_time=60, retry_wait=10, restarts=0)
TWO_SUPPLIES = {
    **FENCE_CONFIG,
    "config.properties": "power_management=pdu-off pdu-b-off pdu-on pdu-b-on\n",
    "fence-method-pdu-b-off": "agent=fence_dummy\naction=off\n",
    "fence-method-pdu-b-on": "agent=fence_dummy\naction=on\n",
}
OFF = RemedyOutcome(result=MethodResult.DONE, proofs=(FenceProof.POWER,))


def test_pods_are_released_between_off_and_on() -> None:
    trial = Trial(settings=QUICK)
    trial.outcomes["pdu-on"] = failing()
    trial.set("n1", "Unknown")
    trial.run(26)
    assert (trial.state(), trial.released) == ("Power-Management/Error", ["n1", "n1"])
    trial.run(60)
    assert trial.released == ["n1", "n1"]


def test_a_machine_with_two_power_supplies_is_off_when_both_are() -> None:
    trial = Trial(maps={"fence-config-n1": TWO_SUPPLIES}, settings=QUICK)
    trial.outcomes |= {"pdu-b-off": failing(), "pdu-off": lambda _: OFF}
    trial.set("n1", "Unknown")
    trial.run(26)
    assert (trial.state(), trial.released) == ("Power-Management/Error", [])
    trial.outcomes["pdu-b-off"] = lambda _: OFF
    trial.run(20)
    assert trial.calls[-3:] == ["n1/pdu-b-off", "n1/pdu-on", "n1/pdu-b-on"]
    assert trial.released == ["n1"]


@pytest.mark.parametrize("maps", [FENCE_CONFIG, TWO_SUPPLIES])
def test_a_flow_that_is_stopped_after_off_switches_the_machine_on(
    maps: dict[str, str],
) -> None:
    trial = Trial(maps={"fence-config-n1": maps}, settings=QUICK)

    def off(_: bool) -> RemedyOutcome:
        stop(trial)
        return OFF

    trial.outcomes["pdu-off"] = off
    trial.set("n1", "Unknown")
    trial.run(40)
    assert trial.calls[-1] == ("n1/pdu-b-on" if maps is TWO_SUPPLIES else "n1/pdu-on")
    assert "n1/pdu-b-off" not in trial.calls
    assert trial.state() == "Power-Management/Done"
    trial.fences["n1"] = replace(trial.fences["n1"], flow=replace(trial.fences["n1"].flow, stopped=False))
    trial.run(40)
    assert trial.released == ([] if maps is TWO_SUPPLIES else ["n1", "n1"])  # of two, only one was off


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ("pdu-on", "the machine is off"),
        ("pdu-off", "the machine may be off: the result of pdu-off is unknown"),
    ],
)
def test_a_stopped_flow_reports_a_machine_that_it_leaves_off(method: str, words: str) -> None:
    trial = Trial(settings=QUICK)

    def unknown(_: bool) -> RemedyOutcome:
        stop(trial)
        return RemedyOutcome(result=MethodResult.UNKNOWN)

    trial.outcomes[method] = unknown if method == "pdu-off" else failing()
    trial.set("n1", "Unknown")
    trial.run(27)
    stop(trial)
    trial.run(600)
    calls = [call for call in trial.calls if "pdu" in call]
    assert calls == ["n1/pdu-off", *["n1/pdu-on"] * 3][: 1 if method == "pdu-off" else 4]
    assert words in str(trial.plans()["n1"].decision)
    assert sum(words in message for message in trial.messages) == 1


def stop(trial: Trial) -> None:
    fence = trial.fences["n1"]
    trial.fences["n1"] = replace(fence, flow=replace(fence.flow, stopped=True))
