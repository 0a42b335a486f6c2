"""Python behind ``script/mutants``."""
