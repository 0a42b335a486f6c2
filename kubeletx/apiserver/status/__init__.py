"""Reporting of pod statuses to the API server."""
