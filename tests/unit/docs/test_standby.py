"""docs/standby.md: its samples are valid, its words are those of the code, and each published figure has a source."""

from __future__ import annotations

import re

import yaml
from kubeletx_quark.config import StrategyName

from kubeletx.agent.config.tree import SETTINGS
from kubeletx.api import names
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec
from kubeletx.kube.validation import validate_pod
from kubeletx.kube.validation.machine import STANDBY_WORDS
from kubeletx.pods.workloads.standby import status
from tests.unit.docs.pages import DOCS, named_blocks, rows, words

PAGE = (DOCS / "standby.md").read_text()


def part(title: str) -> str:
    """The text of a section, with its tables."""
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_sample_of_annotations_is_accepted_and_names_every_value() -> None:
    (sample,) = named_blocks(PAGE)["annotations"]
    notes = yaml.safe_load(sample)["metadata"]["annotations"]
    assert notes.keys() == {names.STANDBY, names.STANDBY_STRATEGY}
    for word in STANDBY_WORDS:
        assert word in sample
        pod = Pod(
            metadata=ObjectMeta(name="web", namespace="default", annotations={**notes, names.STANDBY: word}),
            spec=PodSpec(containers=(Container(name="main", image="example.com/web:1"),)),
        )
        assert validate_pod(pod, "docs/standby.md") == ()
    for strategy in StrategyName:
        assert strategy.value in sample


def test_the_table_of_strategies_has_all_of_them() -> None:
    table = [words(row[0])[0] for row in rows(part("Strategies"))]
    assert table == [strategy.value for strategy in StrategyName]
    assert all(all(row) for row in rows(part("Strategies")))


def test_conditions_reasons_events_and_metrics_exist() -> None:
    text = part("What is reported")
    assert names.STANDBY_CONDITION in text
    for reason in (
        status.STANDBY,
        status.HIBERNATED,
        status.FREEZE_FAILED,
        status.THAW_FAILED,
        status.NOT_FROZEN_YET,
        status.NOT_FROZEN,
    ):
        assert reason in text
    for event in (
        names.Event.STANDBY,
        names.Event.HIBERNATED,
        names.Event.ACTIVATED,
        names.Event.FAILED_POWER,
    ):
        assert event in text
    reference = (DOCS / "reference.md").read_text()
    metrics = re.findall(r"`(kubeletx_\w+)`", text)
    assert metrics
    for metric in metrics:
        assert f"`{metric}`" in reference


def test_settings_exist() -> None:
    known = {setting.key for setting in SETTINGS}
    said = re.findall(r"`(kubeletx\.\w+|memorySwap\.\w+)(?:: \w+)?`", PAGE)
    assert {
        "kubeletx.standbyStreams",
        "kubeletx.standbyDelay",
        "kubeletx.standbyRequestsPercent",
        "memorySwap.swapBehavior",
    } == set(said)
    assert set(said) <= known


def test_every_figure_of_another_project_has_its_source_beside_it() -> None:
    table = rows(PAGE.partition("<!-- comparison -->")[2])
    assert {row[0].split(",")[0].split(" ")[0] for row in table} == {
        "kubeletx",
        "Quark",
        "CRIU",
        "Firecracker",
        "Knative",
    }
    for row in table:
        assert len(row) == 6
        assert all(row)
        figures = re.findall(r"\d+(?:\.\d+)? (?:ms|s|%)", row[2])
        assert not figures or "](https://" in row[2]
        if row[0].startswith("kubeletx"):
            assert not figures
