"""Eviction: ends pods when the node is short of a resource, or when they exceed their disk limits.

use.py            data types for the usage of a pod
rank.py           order of evictions under pressure, and their messages. Pure
limits.py         disk limits of single pods. Pure
disks.py          measures the directories of pods
volume_use.py     measures volumes outside these directories, for statistics
evictor.py        the loop that checks the node, frees disk space and ends pods
host_shutdown.py  ends pods when the host shuts down
"""
