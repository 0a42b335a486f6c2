"""Eviction: ends pods when the node is short of a resource, or when they exceed their disk limits.

use.py      usage of a pod                        rank.py     order of evictions under pressure. Pure
limits.py   pods over their own limits. Pure      texts.py    the kubelet's messages. Pure
disks.py    measures pods' directories            evictor.py  the loop that looks, relieves and ends
"""
