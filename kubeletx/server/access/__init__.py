"""TLS, authentication and authorization of the kubelet's API (HTTPS, port 10250)."""
