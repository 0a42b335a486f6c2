"""Nodes and documents of tests of the configuration."""

from __future__ import annotations

from collections.abc import Mapping

from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.remedy.model import NodeView
from kubeletx.remedy.sources import LoadedConfig, load_config


def node(name: str = "one", *, labels: Mapping[str, str] | None = None, provider_id: str = "") -> NodeView:
    spec = type(NodeView().spec)(provider_id=provider_id)
    return NodeView(metadata=ObjectMeta(name=name, labels=dict(labels or {})), spec=spec)


def loaded(text: str = "", maps: Mapping[str, Mapping[str, str]] | None = None) -> LoadedConfig:
    return load_config({"c.yaml": text} if text else {}, maps or {}, LoadedConfig())
