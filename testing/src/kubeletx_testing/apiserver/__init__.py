"""An API server in the test's process, and helpers for its tests.

`ApiServerDouble` behaves as kube-apiserver does towards nodes and kubectl; where it differs it is wrong, and the tests
marked `apiserver` compare the two. `kubeletx_testing.lab` starts a real one.
"""

from .authorization import Grant
from .ca import CertificateAuthority, Pair
from .client import ApiClient, Reply
from .double import ApiServerDouble
from .errors import StatusError
from .faults import Faults, Rule
from .kubeconfig import write_kubeconfig
from .line import Line
from .request_log import RequestLog, RequestRecord
from .settings import Settings

__all__ = [
    "ApiClient",
    "ApiServerDouble",
    "CertificateAuthority",
    "Faults",
    "Grant",
    "Line",
    "Pair",
    "Reply",
    "RequestLog",
    "RequestRecord",
    "Rule",
    "Settings",
    "StatusError",
    "write_kubeconfig",
]
