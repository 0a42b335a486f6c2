"""The guest's network interfaces: the pod network by CNI, and extra ones on libvirt networks and bridges."""
