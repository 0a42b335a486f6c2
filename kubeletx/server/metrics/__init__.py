"""Metrics and statistics, rendered."""
