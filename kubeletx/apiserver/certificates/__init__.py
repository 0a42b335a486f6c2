"""The node's client and serving certificates: request, storage and renewal."""
