"""Pods written as the fields that matter to a test."""

from __future__ import annotations

import json
from typing import Any

from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.manifests.load import load_pods
from kubeletx.kube.types.core import Pod


def raw_pod(spec: str = "", *, container: str = "", metadata: str = "") -> Pod:
    """A pod without defaults; arguments are the inside of YAML flow mappings."""
    containers = (
        ""
        if "ontainers:" in spec or "virtualMachine:" in spec
        else f"containers: [{{name: c, image: 'app:1', {container}}}], "
    )
    name = "" if metadata.startswith("name:") else "name: web, "
    text = f"{{apiVersion: v1, kind: Pod, metadata: {{{name}{metadata}}}, spec: {{{containers}{spec}}}}}"
    return load_pods(text.encode(), "web.yaml")[0]


def full_pod(spec: str = "", *, container: str = "", metadata: str = "") -> Pod:
    """The same with defaults."""
    return set_defaults(raw_pod(spec, container=container, metadata=metadata))


def pod_from(value: dict[str, Any]) -> Pod:
    """A pod from plain data, without defaults."""
    return load_pods(json.dumps({"apiVersion": "v1", "kind": "Pod", **value}).encode(), "web.yaml")[0]
