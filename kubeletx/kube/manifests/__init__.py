"""Manifests of pods: decoding, defaults and hashes."""
