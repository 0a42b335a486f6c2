"""A test double of kube-apiserver in the test's process, with helpers for tests of the agent in a cluster.

`ApiServerDouble` behaves towards nodes and kubectl as kube-apiserver does. Every difference is a fault of the
double. Tests marked `apiserver` run against the double and a real API server and find such differences.
`kubeletx_testing.lab` starts a real API server.
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
