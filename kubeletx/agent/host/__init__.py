"""The agent's process and its machine: agent id, locks, logging, threads, the service manager."""
