"""Public: plugins with one fault each, for tests of the agent, and for plugin authors to study.

Each module has one fault. Its docstring says what the fault is, what the agent does about it, and what correct code
does instead. A module with a hook is a plugin, whose runtime kind is named like the module.
"""
