"""Runtime endpoints: syntax of the flags, URLs, plugin kinds, drop-in files, discovery of sockets."""
