"""Rooms that an agent without cluster and pods does not use are not loaded."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

CLUSTER = r"kubeletx\.(apiserver\.(?!objects($|\.runtime_classes$))|kube\.client|agent\.cluster)"
KUBELET_API = r"kubeletx\.(server\.(kubelet|access)|agent\.parts\.kubelet_api)"
CORES = r"kubeletx\.fornax($|\.)"
EDGE = r"kubeletx\.(health($|\.)|agent\.edge\.(?!part$))"
STREAMS = r"kubeletx\.(streaming|server\.admin\.streams)"
LIBRARIES = r"(difflib|cryptography|grpc|opentelemetry|google\.protobuf)($|\.)"


@pytest.fixture(scope="module")
def loaded() -> list[str]:
    """Modules that are loaded once the agent's own code is, before any plugin."""
    code = "import sys, kubeletx.cli.main, kubeletx.agent.main; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("unused", [CLUSTER, KUBELET_API, CORES, EDGE, STREAMS, LIBRARIES])
def test_an_agent_loads_a_room_only_when_it_uses_it(loaded: list[str], unused: str) -> None:
    assert "kubeletx.agent.assembly" in loaded
    assert [name for name in loaded if re.match(unused, name)] == []
