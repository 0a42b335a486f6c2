"""Removes secrets from text of drivers before it is quoted in an error or a log line.

A driver may print a secret as it got it (base64), decoded, without the line feed at its end, one line of it, as JSON
text, or as a part of a URL. Each of these forms is replaced.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from urllib.parse import quote

REPLACEMENT = "[secret]"
_SHORTEST_LINE = 8
"""Lines of a secret with fewer characters are replaced only as part of the whole secret."""


class Redactor:
    """Replaces the secrets of one call in text. Its repr does not show them."""

    def __init__(self, secrets: Mapping[str, bytes] | None = None) -> None:
        """`secrets`: content by key, not encoded."""
        forms = {form for data in (secrets or {}).values() for form in _forms(data)}
        self._forms = sorted(forms, key=len, reverse=True)

    def __repr__(self) -> str:
        return f"Redactor({len(self._forms)} forms)"

    def clean(self, text: str) -> str:
        """Return `text` with every form of each secret replaced."""
        for form in self._forms:
            text = text.replace(form, REPLACEMENT)
        return text


def _forms(data: bytes) -> Iterator[str]:
    for form in {data, data.strip()}:
        if not form:
            continue
        for encoded in (base64.b64encode(form).decode(), base64.urlsafe_b64encode(form).decode()):
            yield encoded
            yield encoded.rstrip("=")
        yield form.hex()
        yield from _texts(form.decode("utf-8", "replace"))


def _texts(text: str) -> Iterator[str]:
    for secret in (text, *(line for line in text.split("\n") if len(line.strip()) >= _SHORTEST_LINE)):
        yield secret
        yield secret.strip()
        yield json.dumps(secret)[1:-1]
        yield json.dumps(secret, ensure_ascii=False)[1:-1]
        yield quote(secret, safe="")
