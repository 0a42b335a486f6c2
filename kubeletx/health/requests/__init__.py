"""Requests of people and the controller: ends of the boot, and counters about images."""
