"""`RuntimeHandle` and its parts: the agent's access to one runtime, with calls, health, lists and events."""
