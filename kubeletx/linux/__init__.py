"""Public: the parts of Linux that the agent and its plugins share. One module a subject; import the module.

files        atomic, durable replacement of small files; `JsonFiles` (json_files) keeps values in such files

This package imports only `kubeletx.api`. A module that nothing uses is never imported.
"""
