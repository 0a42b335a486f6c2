"""Writes the code templates of ``kubeletx plugin new`` from the example plugins."""
