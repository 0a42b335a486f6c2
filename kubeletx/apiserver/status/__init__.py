"""Statuses of pods on their way to the API server."""
