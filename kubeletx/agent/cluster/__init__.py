"""The node's membership in a cluster: its identity, its connection to the API server, and the tasks that use it."""
