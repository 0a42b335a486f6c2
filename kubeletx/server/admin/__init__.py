"""The admin socket and its routes."""
