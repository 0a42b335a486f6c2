"""Reads the API objects that pods refer to: config maps, secrets, services, tokens, claims, runtime classes."""
