"""Readiness, liveness and startup probes, and lifecycle hooks: requests, evaluation of the answers, and schedule."""
