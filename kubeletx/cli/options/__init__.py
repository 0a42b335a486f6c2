"""Options, settings and groups that the commands share."""
