"""Values of the kubelet that both the command line and the agent know. It imports nothing, so that help is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Final

KUBELET: Final = "kubelet"
"""The program's name; called by it, kubeletx runs as the kubelet."""
KUBELET_ROOT: Final = Path("/var/lib/kubelet")
EXTERNAL: Final = "external"
"""The one value of --cloud-provider that kubelets still know."""
