"""A simulated FornaxCore: the published protocol, the behaviour of a real core, and faults.

`FornaxCore` runs in the event loop of a test, several of them as a `Cluster`; ``python -m kubeletx_testing.fornaxcore`` is
a program of its own with an HTTP API. It is written from the field tables and shares only the generated messages with
the node.
"""

from .cluster import Cluster
from .core import FornaxCore
from .faults import Action, Direction, Fault
from .objects import PodRequest, SessionRequest
from .settings import CoreSettings, Tls

__all__ = [
    "Action",
    "Cluster",
    "CoreSettings",
    "Direction",
    "Fault",
    "FornaxCore",
    "PodRequest",
    "SessionRequest",
    "Tls",
]
