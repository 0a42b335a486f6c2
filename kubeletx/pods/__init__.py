"""Pods of this node: one worker for each, from what is wanted to what is reported."""
