"""Connection to the Kubernetes API server: reads the pods assigned to this node; reports the node and its pods."""
