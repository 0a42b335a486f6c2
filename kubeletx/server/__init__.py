"""The agent's servers: the admin socket, the health port, the read-only port."""
