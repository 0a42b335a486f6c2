"""A lab of private daemons and an API server in the test's process, for tests of kubeletx itself."""
