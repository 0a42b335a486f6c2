"""The space on file systems: an example health check for kubeletx."""
