"""Example plugin of kubeletx: a remedy that switches nodes off through the power controller of a rack."""
