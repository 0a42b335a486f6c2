"""Generated from `protos/` by `protos/generate`; never edited.

The one definition of these messages in a process: plugins that speak CRI or containerd import them here.
"""
