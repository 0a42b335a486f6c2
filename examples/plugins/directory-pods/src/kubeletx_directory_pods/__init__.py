"""Pods from the files of a directory: an example pod source for kubeletx."""
