"""Agent side of the guardian of an edge node; only `part` is imported without ``--health-run-dir``."""
