"""Options, settings and click groups that the commands share."""
