"""Rules for pods of containers that can be frozen, hibernated and resumed (thawed) by their runtime.

Machines share the action, its step and results, the rule when a pod may be frozen, and the condition. Their plan is in
`pods.workloads.machine`.
"""
