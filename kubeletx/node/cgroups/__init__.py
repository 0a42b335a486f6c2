"""The cgroups of pods: creation and limits in every hierarchy, the formats of the kernel's files, pressure
and usage.
"""
