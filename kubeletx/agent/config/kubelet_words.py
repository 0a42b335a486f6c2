"""Names and paths of the kubelet that both the command line and the agent use.

The module imports nothing large, so that ``--help`` is quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

KUBELET: Final = "kubelet"
"""File name of the kubelet's program. If kubeletx is started under this name, it uses the kubelet's defaults."""
KUBELET_ROOT: Final = Path("/var/lib/kubelet")
VOLUME_PLUGIN_DIR: Final = Path("/usr/libexec/kubernetes/kubelet-plugins/volume/exec")
"""Directory of executable FlexVolume drivers."""
EXTERNAL: Final = "external"
"""The only value of --cloud-provider that kubelets still accept."""
