"""Protobuf message classes of CRI and containerd, generated from `protos/` by `protos/generate`; never edited.

Plugins import the messages from here, since a process can have only one definition of each.
"""
