"""The cgroups of pods: creates and limits them in every hierarchy, and reads their usage and pressure."""
