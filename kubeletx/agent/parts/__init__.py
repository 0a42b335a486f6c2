"""What the agent builds from its configuration, one file for each part."""
