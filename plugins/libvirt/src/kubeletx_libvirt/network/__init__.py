"""Network interfaces of guests: the pod network through CNI, and further ones on libvirt networks and bridges."""
