"""The agent's side of the VM verbs."""
