"""Kinds of volumes: each file prepares volumes of one kind on the node. `table` lists the kinds."""
