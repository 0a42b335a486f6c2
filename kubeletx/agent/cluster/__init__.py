"""The node's membership in a cluster: identity, connection, and what runs on it."""
