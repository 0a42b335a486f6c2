"""The first steps of newcomers, as the documentation has them."""
