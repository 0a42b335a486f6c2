"""Reports pod statuses to the API server."""
