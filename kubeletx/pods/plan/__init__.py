"""Planning for one pod: pure functions from its desired state, the facts and the time to its next actions."""
