"""The agent's configuration (`AgentConfig`), read from defaults, file, drop-in directory and flags."""
