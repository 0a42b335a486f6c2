"""A public class name means one thing in the host, so that a search finds one definition."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[3]
HOST = ROOT / "kubeletx"

SHARED = {
    # The runtime contract and Kubernetes have the same word for the same thing, in two formats.
    "Capabilities": {"kubeletx/api/specs.py", "kubeletx/kube/types/security.py"},
    "EnvVar": {"kubeletx/api/specs.py", "kubeletx/kube/types/container.py"},
    "Nic": {"kubeletx/api/specs.py", "kubeletx/kube/types/machine.py"},
    "SELinuxOptions": {"kubeletx/api/specs.py", "kubeletx/kube/types/security.py"},
    # Reasons of events that plugins use, and the API object.
    "Event": {"kubeletx/api/names.py", "kubeletx/kube/types/event.py"},
    # The API object, and the pod that the contract suite makes from plain values.
    "Pod": {"kubeletx/kube/types/core.py", "kubeletx/testing/contract/base.py"},
}
"""Names that two files may define, and which."""


def test_a_public_class_name_is_defined_once() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for path in HOST.rglob("*.py"):
        if path.parent.name == "stubs":
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(path.relative_to(ROOT).as_posix())
    twice = {name: files for name, files in found.items() if len(files) > 1}
    assert twice == SHARED
