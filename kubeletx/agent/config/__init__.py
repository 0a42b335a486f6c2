"""The agent's settings: one tree, read from defaults, file, drop-in directory and flags."""
