"""Records of who has which volume attached: exclusive access, fencing, and removal of stale records."""
