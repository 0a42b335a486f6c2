"""The node itself: identity, capacity, readiness, events, usage, and the cgroups of pods.

Import from its modules: `identity`, `capacity`, `info`, `readiness`, `status`, `events`, `totals`, `cgroups`.
"""
