"""Rules for code of plugins in the agent: whose it is, what it must have, and what a failure of it is called."""
