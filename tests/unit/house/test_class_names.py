"""A public class name means one thing in the host, so that a search finds one definition."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.unit.house.sources import HOST, ROOT, host_and_plugins, tree

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
    # The streams of an exec, as runtimes know it, and the application session of Fornax' documents.
    "Session": {"kubeletx/api/streams.py", "kubeletx/sessions/model.py"},
}
"""Names that two files may define, and which."""


def test_a_public_class_name_is_defined_once() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for path in host_and_plugins():
        if HOST not in path.parents:
            continue
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(path.relative_to(ROOT).as_posix())
    twice = {name: files for name, files in found.items() if len(files) > 1}
    assert twice == SHARED
