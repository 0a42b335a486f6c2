"""One runtime as the agent uses it: calls, health, lists, events."""
