"""What a refused upgrade says."""

from __future__ import annotations

import pytest

from kubeletx.streaming.status import refusal_of


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"kind": "Status", "message": "no such pod"}', "no such pod"),
        (b'{"error": "bad gateway"}', '{"error": "bad gateway"}'),
        (b" gone \n", "gone"),
        (b"", ""),
    ],
)
def test_a_refusal_is_a_statuss_message_or_the_text_as_it_is(body: bytes, words: str) -> None:
    assert refusal_of(body) == words
