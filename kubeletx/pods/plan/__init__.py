"""Planning for one pod: pure functions that derive its next actions from its desired state, its facts and the time."""
