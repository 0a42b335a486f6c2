"""Protobuf message classes, generated from `protos/` by `protos/generate`; never edited."""
