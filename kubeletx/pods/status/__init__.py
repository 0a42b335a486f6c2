"""Statuses of pods, and the board that holds the newest status of each. Pure."""
