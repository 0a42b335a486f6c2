"""Late binding: which runtime a pod gets, and the lasting record of it."""
