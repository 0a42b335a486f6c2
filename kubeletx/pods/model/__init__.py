"""Facts and desired state of one pod, as frozen values, and small rules over them. Pure."""
