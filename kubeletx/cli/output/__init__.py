"""Output formats of the command line: tables and their columns, JSON, YAML, log lines, pictures, progress."""
