"""Values of the kubelet that both the command line and the agent use. It imports nothing, so that help is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Final

KUBELET: Final = "kubelet"
"""Name of the kubelet's program; kubeletx started under this name runs as the kubelet."""
KUBELET_ROOT: Final = Path("/var/lib/kubelet")
EXTERNAL: Final = "external"
"""The only value of --cloud-provider that kubelets still accept."""
