"""Benchmarks of the agent against their floors; see script/bench."""
