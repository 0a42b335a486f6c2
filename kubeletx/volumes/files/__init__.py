"""Safe work on files that containers can change: no link is followed, owners are set, content is swapped as a whole."""
