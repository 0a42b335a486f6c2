"""Parsing and formatting of texts as Kubernetes writes them: quantities, durations, YAML."""
