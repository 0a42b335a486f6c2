"""Standby of pods of containers on the admin socket: verbs and routes."""
