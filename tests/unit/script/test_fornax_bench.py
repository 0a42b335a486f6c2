"""Benchmarks of the link: they run, and the simulated core finds no message that breaks the protocol."""

from __future__ import annotations

from script.benchmarks import fornax_link
from script.benchmarks.model import TINY


def test_changes_pass_the_link_and_are_compared_with_bare_calls() -> None:
    (changes,) = fornax_link.link_changes(TINY).figures
    assert changes.floor is not None


def test_simulated_nodes_register_and_report() -> None:
    ready, changes = fornax_link.fornax_fleet(TINY).figures
    assert ready.value > 0
    assert changes.value > 0
