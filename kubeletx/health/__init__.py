"""Room `health`: the guardian of a node far from hands, a process of its own (``kubeletx health``).

    watches agents and checks ─► verdict ─► commits a new OS image, or reboots into the old one

It imports `api` and `linux` only and depends on no configuration. Everything is counted in ticks of 10 s, never in wall
time. `validation`, `operations`, `maintenance` and `contact` decide and are pure; `guardian` reads, decides once a tick,
and acts.
"""
