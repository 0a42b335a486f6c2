"""Runtime endpoints: grammar, URLs, kinds, drop-in files, discovery."""
