"""Devices of the machine that the guardian drives, if the configuration names them."""
