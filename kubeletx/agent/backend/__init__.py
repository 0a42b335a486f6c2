"""Implements the requests of the agent's servers: the protocols of `server.backend`, one file per subject."""
