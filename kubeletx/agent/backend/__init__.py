"""The agent's side of the servers: implements the protocols of `server.backend`, one file per subject."""
