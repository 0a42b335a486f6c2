"""Numbered, forward-only steps from one schema version to the next.

A step is a module ``vNNNN_words.py`` with a docstring that says why, and ``upgrade(op)`` where `op` is an
`alembic.operations.Operations`. It brings a file of version NNNN-1 to NNNN and must succeed when an earlier
try was cut off half-way. New tables need no step: they are created when the file is opened.
"""
