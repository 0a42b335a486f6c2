"""The Node object and its Lease: created, patched, renewed."""
