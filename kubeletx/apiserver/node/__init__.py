"""Registers and reports this machine's Node object, and renews its Lease."""
