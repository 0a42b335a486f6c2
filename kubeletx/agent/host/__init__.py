"""The process and its machine: identity, locks, logging, threads, the service manager."""
