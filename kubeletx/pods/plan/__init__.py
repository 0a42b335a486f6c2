"""The next actions of one pod: (desired, facts, now) → actions. Pure."""
