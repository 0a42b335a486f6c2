"""The node's pod network, for runtimes that do not call CNI themselves (DECISIONS 22)."""

from .network import CniPodNetwork

__all__ = ["CniPodNetwork"]
