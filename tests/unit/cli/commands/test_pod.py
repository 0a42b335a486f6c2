"""``kubeletx pod``: the requests it makes and its output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]


@pytest.mark.parametrize(
    ("arguments", "verb", "said"),
    [
        (("standby", "web"), "standby", "pod/web standby"),
        (("standby", "pod/web", "--hibernate"), "hibernate", "pod/web hibernated"),
        (("activate", "web"), "activate", "pod/web running"),
    ],
)
def test_standby_verbs(agent: Any, kubeletx: Run, arguments: tuple[str, ...], verb: str, said: str) -> None:
    result = kubeletx("pod", *arguments, "--timeout", "2m")
    assert (result.exit_code, result.stdout) == (0, said + "\n")
    assert agent.backend.calls == [("set_standby", "default/web", verb, 120.0)]


def test_a_bad_timeout_is_refused(agent: Any, kubeletx: Run) -> None:
    result = kubeletx("pod", "standby", "web", "--timeout", "soon")
    assert result.exit_code == 2
    assert "--timeout: 'soon'" in result.stderr
