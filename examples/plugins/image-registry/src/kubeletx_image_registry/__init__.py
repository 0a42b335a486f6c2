"""The registries that images come from: an example admission check for kubeletx."""
