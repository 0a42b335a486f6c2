"""`kubeletx setup`, `kubeletx doctor` and `kubeletx man`: files of a node, checks of a node, man pages."""
