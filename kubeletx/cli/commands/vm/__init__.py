"""The commands of virtual machines: `kubeletx vm`."""
