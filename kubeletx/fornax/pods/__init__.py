"""Pods of cores: their states, actors, reports, ports and rows."""
