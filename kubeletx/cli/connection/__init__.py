"""Client of the agent's admin socket: requests, streams and forwarded ports."""
