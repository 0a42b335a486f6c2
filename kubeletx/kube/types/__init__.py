"""Kubernetes objects as frozen values."""
