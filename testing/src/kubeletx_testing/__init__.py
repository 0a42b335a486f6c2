"""A lab of private daemons and a double of the API server, for tests of kubeletx itself."""
