"""Pods as plain processes of the node: the example runtime plugin of kubeletx."""
