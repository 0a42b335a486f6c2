"""Volumes of pods on the admin socket: verbs and routes."""
