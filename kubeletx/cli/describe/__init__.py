"""Text output of ``kubeletx describe`` for pods, the node and runtimes."""
