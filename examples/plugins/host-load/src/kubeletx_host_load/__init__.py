"""The load of the machine: an example panel for kubeletx."""
