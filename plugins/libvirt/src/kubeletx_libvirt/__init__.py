"""Virtual machines as pods, through libvirt."""
