"""Machines: virtual machines, one for each pod."""
