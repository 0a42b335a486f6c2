"""Runtime endpoints: syntax, URLs, kinds, drop-in files, discovery."""
