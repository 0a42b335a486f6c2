"""Attacks on a private agent; see script/attack."""
