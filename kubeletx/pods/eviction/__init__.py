"""Ending pods when the node is short of something, or when they take more of its disk than they may.

use.py      what a pod takes                      rank.py     whom to end first under pressure. Pure
limits.py   who is over a limit of its own. Pure  texts.py    the kubelet's messages. Pure
disks.py    measures pods' directories            evictor.py  the loop that looks, relieves and ends
"""
