"""One runtime as the host sees it: calls, health, lists, events."""
