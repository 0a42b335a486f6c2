"""Standby: pods of containers whose runtime can freeze or hibernate their units and bring them back."""
