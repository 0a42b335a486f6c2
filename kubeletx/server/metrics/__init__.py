"""Renderers of the agent's metrics (Prometheus' text format) and of its statistics (``/stats/summary``)."""
