"""Runtime classes of the configuration have to name a runtime of the node."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.agent.config.endpoints import check_classes
from kubeletx.agent.config.tree import AgentConfig, RuntimeSettings
from kubeletx.api import Endpoint, InvalidConfig, RuntimeName
from kubeletx.runtimes.endpoints.problems import InvalidConfigs

ENDPOINTS = (Endpoint(name=RuntimeName("second"), workload_type="container", url="unix:///x", kind="k"),)


def config(root: Path, target: str) -> AgentConfig:
    return AgentConfig(root_dir=root, runtimes=RuntimeSettings(classes={"isolated": target}))


@pytest.mark.parametrize("target", ["second", "second--kata"])
def test_a_class_of_a_runtime_is_taken(tmp_path: Path, target: str) -> None:
    check_classes(config(tmp_path, target), ENDPOINTS)


@pytest.mark.parametrize("target", ["", "third", "--kata", "Second", "a b"])
def test_a_class_that_names_no_runtime_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(
        InvalidConfig, match=r"runtimeClasses\[isolated\]: .* names no runtime .*one of: second"
    ):
        check_classes(config(tmp_path, target), ENDPOINTS)


def test_every_class_that_names_no_runtime_is_named(tmp_path: Path) -> None:
    classes = {"good": "second", "one": "third", "two": "a b"}
    tree = AgentConfig(root_dir=tmp_path, runtimes=RuntimeSettings(classes=classes))
    with pytest.raises(InvalidConfigs) as raised:
        check_classes(tree, ENDPOINTS)
    assert [error.field for error in raised.value.errors] == [
        "kubeletx.runtimeClasses[one]",
        "kubeletx.runtimeClasses[two]",
    ]


def test_a_runtime_that_is_added_while_the_agent_runs_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "runtimes.d").mkdir()
    (tmp_path / "runtimes.d" / "third.json").write_text("{}")
    check_classes(config(tmp_path, "third"), ENDPOINTS)
    with pytest.raises(InvalidConfig):
        check_classes(config(tmp_path, ""), ENDPOINTS)
