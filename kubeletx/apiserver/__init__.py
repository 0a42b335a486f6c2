"""The Kubernetes API server as pod source and status reporter: this machine as a node of a cluster."""
