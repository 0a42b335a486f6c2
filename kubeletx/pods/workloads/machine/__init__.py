"""Rules for pods that are virtual machines, one machine per pod. In this package, "machine" means such a machine."""
