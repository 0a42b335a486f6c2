"""Log files, termination messages and directories of pods on this node."""
