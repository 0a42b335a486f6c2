"""The generated page of the guardian's topics and settings, docs/edge-topics.md."""
