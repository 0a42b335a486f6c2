"""Late binding: chooses the runtime of a pod and stores the choice."""
