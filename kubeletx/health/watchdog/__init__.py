"""Watchdog: agents that give signs of life (`ages` is pure, `agents` reads files), and the machine's own (`hardware`)."""
