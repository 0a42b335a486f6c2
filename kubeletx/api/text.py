"""Text that can be encoded as UTF-8.

File names, arguments and foreign JSON may hold code points that cannot: half of a surrogate pair represents a byte that
is not UTF-8 (PEP 383), or a broken escape in JSON.
"""

from __future__ import annotations


def is_printable(text: str) -> bool:
    """Return True if the text can be encoded as UTF-8, as a file, a database or a socket requires."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    r"""Replace code points that UTF-8 cannot encode by escapes such as ``\udcff``; other text is unchanged."""
    return text if is_printable(text) else text.encode("utf-8", "backslashreplace").decode()
