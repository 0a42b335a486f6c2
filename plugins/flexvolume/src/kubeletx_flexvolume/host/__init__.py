"""Calls executable FlexVolume drivers for pods of kubeletx."""
