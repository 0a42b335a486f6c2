"""Checks before node remedy acts: storage of pods, Leases of nodes, and surroundings of the controller."""
