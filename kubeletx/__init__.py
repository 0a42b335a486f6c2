"""kubeletx: one node agent, several runtimes; each pod is bound late to exactly one of them."""

__version__ = "0.1.0"
