"""containerd, and any other CRI v1 server, as a runtime of kubeletx."""
