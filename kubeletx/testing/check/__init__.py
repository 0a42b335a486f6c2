"""``kubeletx plugin check``: checks an installed plugin for its author, ``python -m kubeletx.testing.check DIST``.

It loads the plugin in a process of its own, prints what it registers, checks types with mypy, and runs the contract suite
of everything that the plugin registers. The command line starts it as a process, since it imports no test code.
"""
