"""Mirror pods: representations of static pods in the API server."""
