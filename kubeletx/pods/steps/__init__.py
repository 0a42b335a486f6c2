"""Steps: the functions that carry out the actions of a plan (`pods.model.actions`), such as `stop_unit`.

A step does I/O and returns a `Result`. It does not decide which action comes next.
"""
