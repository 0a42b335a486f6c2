"""Nodes and documents of tests of the configuration."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kubeletx.remedy.model import NodeView, RemedyCourse
from kubeletx.remedy.sources import LoadedConfig, load_config

FENCED = """
apiVersion: node-remedy/v1alpha
kind: Configuration
thresholdConfigs:
- nodeConditionType: Ready
  nodeConditionStatus: false
  nodeConditionPeriod: 5s
  remedy1: {name: fence}
"""


def node(name: str = "one", *, labels: Mapping[str, str] | None = None, provider_id: str = "") -> NodeView:
    raw = {"metadata": {"name": name, "labels": labels or {}}, "spec": {"providerID": provider_id}}
    return msgspec.convert(raw, NodeView)


def loaded(
    text: str = FENCED,
    maps: Mapping[str, Mapping[str, str]] | None = None,
    *,
    last: LoadedConfig | None = None,
) -> LoadedConfig:
    """Load one file and the ConfigMaps of a cluster."""
    return load_config({"c.yaml": text}, maps or {}, last or LoadedConfig())


def problems(of: LoadedConfig) -> list[str]:
    return [str(problem) for problem in of.problems]


def fence(of: LoadedConfig, of_node: NodeView | None = None) -> RemedyCourse:
    """Return the course of the only remedy of the only threshold."""
    (courses,) = of.configurations.courses(of_node or node())
    (course,) = courses.courses
    return course


def properties(*lines: str) -> dict[str, str]:
    return {"config.properties": "\n".join(lines)}


def method(*lines: str) -> dict[str, str]:
    return {"method.properties": "\n".join(lines)}


def template(*lines: str) -> dict[str, str]:
    return {"template.properties": "\n".join(lines)}
