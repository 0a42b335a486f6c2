"""Replaces lone surrogates, which cannot be encoded as UTF-8, in text.

They come from file names and arguments with bytes that are not UTF-8 (PEP 383), and from broken escapes in JSON.
"""

from __future__ import annotations


def is_printable(text: str) -> bool:
    """Return True if `text` can be encoded as UTF-8, that is, has no lone surrogates."""
    if text.isascii():  # without the copy that an encoding makes
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    r"""Return `text` with lone surrogates replaced by escapes such as ``\udcff``, so that UTF-8 can encode it."""
    return text if is_printable(text) else text.encode("utf-8", "backslashreplace").decode()
