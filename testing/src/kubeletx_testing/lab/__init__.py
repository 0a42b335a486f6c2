"""The lab: private daemons for the demo, tests and benchmarks, such as an image registry and containerds.

``with Lab(directory) as lab: ...`` needs root and the Debian packages that ``script/setup`` installs.
`require` raises an error that names what is missing. The lab does not change the host's own daemons, networks
and directories.
"""

from .agent import PrivateAgent, bound_runtime, is_ready
from .cni import PrivateNetwork
from .containerd import HANDLERS, PrivateContainerd, answers_cri
from .cri import CriCalls
from .disk import SmallDisk
from .images import REGISTRY_NAME, image_ref, load_images, make_image
from .lab import Lab, require
from .oci import Image, build_image, build_layer, push
from .pods import pod_manifest, put_manifest
from .process import Daemon, LabError
from .registry import PrivateRegistry, free_port
from .storage import PrivateStorageAgent
from .sweep import clean, clean_stale, leftovers
from .tools import find_tool, get_tool, list_missing

__all__ = [
    "HANDLERS",
    "REGISTRY_NAME",
    "CriCalls",
    "Daemon",
    "Image",
    "Lab",
    "LabError",
    "PrivateAgent",
    "PrivateContainerd",
    "PrivateNetwork",
    "PrivateRegistry",
    "PrivateStorageAgent",
    "SmallDisk",
    "answers_cri",
    "bound_runtime",
    "build_image",
    "build_layer",
    "clean",
    "clean_stale",
    "find_tool",
    "free_port",
    "get_tool",
    "image_ref",
    "is_ready",
    "leftovers",
    "list_missing",
    "load_images",
    "make_image",
    "pod_manifest",
    "push",
    "put_manifest",
    "require",
]
