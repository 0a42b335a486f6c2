"""Small Kubernetes client: typed requests that raise `kubeletx.api` errors, and lists kept current by a watch."""

from .access import ClusterAccess, load_kubeconfig
from .errors import BudgetExceeded, Expired, TooManyRequests
from .reflector import Reflector, ReflectorSink
from .requests import KubeClient, Patch
from .resources import Resource

__all__ = [
    "BudgetExceeded",
    "ClusterAccess",
    "Expired",
    "KubeClient",
    "Patch",
    "Reflector",
    "ReflectorSink",
    "Resource",
    "TooManyRequests",
    "load_kubeconfig",
]
