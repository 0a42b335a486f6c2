"""What the agent reports about a pod, and the board that holds the newest status of each. Pure."""
