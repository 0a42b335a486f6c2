"""Verbs on objects, as kubectl has them."""
