"""The image store: disks from URLs, files and registries, kept once and shared by all overlays."""
