"""Cgroups: those of pods, the trees of the machine, what their files say, pressure and usage."""
