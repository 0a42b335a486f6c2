"""A light Kubernetes client: typed requests, errors of `kubeletx.api`, and lists that follow their watch."""

from .access import ClusterAccess, load_kubeconfig
from .errors import Expired, TooManyRequests
from .reflector import Reflector, ReflectorSink
from .requests import KubeClient, Patch
from .resources import Resource

__all__ = [
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
