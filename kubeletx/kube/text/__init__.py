"""Texts as Kubernetes writes them: quantities, durations, YAML."""
