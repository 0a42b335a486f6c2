"""Kinds of volumes, one file each: how a volume of this kind is prepared on the node. `table` lists them."""
