"""Rules for pods of containers that can be frozen, hibernated and resumed (thawed) by their runtime."""
