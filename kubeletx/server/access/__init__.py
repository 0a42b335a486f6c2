"""TLS, authentication and authorization of the kubelet API."""
