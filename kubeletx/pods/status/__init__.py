"""Builds the `PodStatus` of pods. The status board keeps the newest status of each pod. No I/O."""
