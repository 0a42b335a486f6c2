"""Kubernetes API objects as frozen msgspec Structs."""
