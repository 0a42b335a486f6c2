"""Commands about the node itself and its processes."""
