"""The image store: disks from URLs, files and registries; each is stored once and shared by all overlays on it."""
