"""Tables, columns and other output formats."""
