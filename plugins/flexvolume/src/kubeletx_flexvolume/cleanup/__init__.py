"""Removal of the volumes of a storage cluster that is being deleted."""
