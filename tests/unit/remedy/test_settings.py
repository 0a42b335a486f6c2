"""ConfigMap remedy-settings: each setting is checked by itself."""

from __future__ import annotations

import pytest

from kubeletx.remedy.model import RemedySettings

from .config_values import loaded, problems


def settings(*lines: str) -> dict[str, dict[str, str]]:
    return {"remedy-settings": {"settings.properties": "\n".join(lines)}}


def test_settings_are_read_and_the_others_keep_their_defaults() -> None:
    found = loaded(
        maps=settings(
            "# waits", "power_wait=1s", "settle-time = 2m", "retry_wait=30", "retries=0", "one_at_a_time=yes",
            "max_unhealthy=3", "domain_label=topology.kubernetes.io/zone",
        )
    )  # fmt: skip
    assert problems(found) == []
    assert found.configurations.settings == RemedySettings(
        power_wait=1.0,
        settle_time=120.0,
        retry_wait=30.0,
        retries=0,
        one_at_a_time=True,
        max_unhealthy="3",
        domain_label="topology.kubernetes.io/zone",
    )


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("power_wait=-1s", "power_wait: '-1s' is negative; durations start at 0"),
        ("power_wait=2d", "power_wait: '2d' is not a duration"),
        ("power_wait=25h", "power_wait: '25h' is out of range; write 0s to 24h"),
        ("retries=many", "retries: 'many' is not a whole number"),
        ("restarts=101", "restarts: '101' is out of range; write 0 to 100"),
        ("max_unhealthy=101%", "max_unhealthy: '101%' is not a number or a percentage; write 2 or 40%"),
        ("respect_budgets=maybe", "respect_budgets: 'maybe' is not true or false"),
        ("domain_label=a b", "domain_label: 'a b' is not a label's key"),
        ("grace_timeout=3", "grace_timeout: '3' is not a setting; remove it or write one of: alarm_count"),
    ],
)
def test_a_wrong_setting_keeps_its_last_value(line: str, expected: str) -> None:
    before = loaded(maps=settings("power_wait=1s", "retries=4", "restarts=5", "max_unhealthy=1"))
    found = loaded(maps=settings(line, "quiet_time=9s"), last=before)
    (problem,) = problems(found)
    assert problem.startswith(f"ConfigMap remedy-settings: settings.properties {expected}")
    assert found.configurations.settings.quiet_time == 9.0
    name = line.partition("=")[0]
    if hasattr(RemedySettings(), name):
        last = getattr(before.configurations.settings, name)
        assert getattr(found.configurations.settings, name) == last


def test_settings_that_cannot_be_read_keep_all_last_values() -> None:
    before = loaded(maps=settings("retries=4"))
    found = loaded(maps=settings("retries"), last=before)
    assert problems(found) == [
        "ConfigMap remedy-settings: settings.properties line 1: has no '='; write KEY=VALUE"
    ]
    assert found.configurations.settings.retries == 4
    assert loaded(last=found).configurations.settings == RemedySettings()


def test_keys_that_are_not_read_are_named() -> None:
    (problem,) = problems(loaded(maps={"remedy-settings": {"settings": "retries=4"}}))
    assert problem == ("ConfigMap remedy-settings: settings: this key is not read; write settings.properties")
