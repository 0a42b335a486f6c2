"""Gives the tests of this folder an agent."""

from __future__ import annotations

from tests.unit.agent.conftest import agent

__all__ = ["agent"]
