"""The agent's HTTP servers: the admin socket, the kubelet's API, the health port, the read-only port."""
