"""``kubeletx session`` and its verbs."""
