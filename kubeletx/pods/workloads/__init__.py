"""Workloads: what distinguishes machines and pods that can stand by from plain containers. One folder for each, and a table."""
