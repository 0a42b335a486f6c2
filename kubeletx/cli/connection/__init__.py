"""The admin socket's client: requests, streams, forwarded ports."""
