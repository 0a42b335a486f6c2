"""The pods of examples/pods/ are what an API server would accept, and what the README says of them is true."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api.names import RUNTIME_SERVICE_NAME
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.manifests.load import load_pods
from kubeletx.kube.manifests.static_refs import refused_references
from kubeletx.kube.types.core import Pod
from kubeletx.kube.validation import validate_pod

EXAMPLES = Path(__file__).parents[3] / "examples" / "pods"
FILES = sorted(EXAMPLES.glob("*.yaml"))
STORAGE = sorted((EXAMPLES.parent / "storage").glob("*.yaml"))
"""Pods of the demo that need the storage agent."""
SESSIONS = sorted((EXAMPLES.parent / "sessions").glob("*.yaml"))


def _pods(path: Path) -> list[Pod]:
    return [set_defaults(pod) for pod in load_pods(path.read_bytes(), path.name)]


@pytest.mark.parametrize("path", [*FILES, *STORAGE, *SESSIONS], ids=lambda path: path.name)
def test_every_example_is_valid_and_needs_no_api_server(path: Path) -> None:
    for pod in _pods(path):
        assert validate_pod(pod, path.name) == ()
        assert refused_references(pod, path.name) == ()


@pytest.mark.parametrize("path", [*FILES, *STORAGE, *SESSIONS], ids=lambda path: path.name)
def test_every_example_explains_itself(path: Path) -> None:
    assert path.read_text().startswith("# ")


def test_the_examples_show_every_way_to_get_a_runtime() -> None:
    pods = [pod for path in FILES for pod in _pods(path)]
    assert {pod.spec.runtime_service_name for pod in pods} == {
        None,
        "containerd-a",
        "containerd-b",
        "quark",
    }
    assert any(RUNTIME_SERVICE_NAME in pod.metadata.annotations for pod in pods)
    assert any(
        pod.spec.runtime_service_name is None and RUNTIME_SERVICE_NAME not in pod.metadata.annotations
        for pod in pods
    )
