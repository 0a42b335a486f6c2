"""Manifests: loaded, completed with defaults, hashed."""
