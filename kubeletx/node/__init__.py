"""The node itself: identity, capacity, readiness, events, usage, and the cgroups of pods.

Modules are imported one by one: `identity`, `capacity`, `info`, `readiness`, `status`, `events`, `totals`,
`cgroups`.
"""
