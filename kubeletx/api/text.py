"""Text that UTF-8 can hold. File names, arguments and foreign JSON may bring code points that it cannot: half of a
surrogate pair stands for a byte that is not UTF-8 (PEP 383), or for a broken escape in JSON."""

from __future__ import annotations


def is_printable(text: str) -> bool:
    """Whether the text can be written as UTF-8: to a file, a database, a socket."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """The text with what UTF-8 cannot hold written as an escape, such as ``\\udcff``; other text as it is."""
    return text if is_printable(text) else text.encode("utf-8", "backslashreplace").decode()
