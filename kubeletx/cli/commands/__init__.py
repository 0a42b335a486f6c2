"""The subcommands, one verb a file."""
