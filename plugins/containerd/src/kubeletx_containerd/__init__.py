"""Runtime plugin of kubeletx for containerd and any other CRI v1 server."""
