"""Kinds of storage that the storage agent can attach. `backend` has their protocol."""
