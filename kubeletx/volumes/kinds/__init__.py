"""Kinds of volumes, one file each: how a volume of the kind is set up on the node. `table` lists them."""
