"""Private daemons (the lab) and a test double of the API server, for tests of kubeletx itself."""
