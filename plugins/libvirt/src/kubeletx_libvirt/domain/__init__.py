"""Pure functions about libvirt domains: their XML, metadata, state and size."""
