"""``kubeletx fornaxcore``: the node under its FornaxCores."""
