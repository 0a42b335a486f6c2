"""The agent's side of the admin socket: implements `server.backend.AdminBackend`, one file per subject."""

from .facade import Backend

__all__ = ["Backend"]
