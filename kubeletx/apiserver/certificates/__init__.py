"""The node's certificates: requested, stored, renewed."""
