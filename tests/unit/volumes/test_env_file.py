from __future__ import annotations

import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import PodUid
from kubeletx.volumes.env_file import MAX_FILE_BYTES, parse_env_file, read_env_file

UID = PodUid("u1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("A='1'\nB='2'", {"A": "1", "B": "2"}),
        ("\n  # comment\n\t A='1'  # why\n\n", {"A": "1"}),
        ("A='one\ntwo # not a comment\n'\nB=''\nC=\n", {"A": "one\ntwo # not a comment\n", "B": "", "C": ""}),
        ("A='$HOME \\n \"x\"'", {"A": '$HOME \\n "x"'}),
        ("A= 'x'", {"A": ""}),
        ("A='1'\nA='2'", {"A": "2"}),
        ("A='1'\r\nB='2'\r\n", {"A": "1", "B": "2"}),
    ],
)
def test_values_stand_in_single_quotes(text, expected):
    assert parse_env_file(text) == expected


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("A=x", 1),
        ("A='x'\nB", 2),
        ("A = 'x'", 1),
        ("='x'", 1),
        ("A='x", 1),
        ("A='x'y", 1),
        ("A='1\n2'\nB=\"x\"", 3),
    ],
)
def test_what_is_not_an_assignment_is_named_by_its_line(text, line):
    with pytest.raises(ValueError, match=f"line {line} is not"):
        parse_env_file(text)


@given(
    st.dictionaries(
        st.from_regex(r"[A-Z_][A-Z0-9_]*", fullmatch=True), st.text().filter(lambda t: "'" not in t)
    )
)
def test_any_quoted_values_are_read_back(values):
    values = {name: value.replace("\r\n", "\n") for name, value in values.items()}
    assert parse_env_file("".join(f"{name}='{value}'\n" for name, value in values.items())) == values


@pytest.fixture
def volume(tmp_path):
    path = tmp_path / "pods/u1/volumes/kubernetes.io~empty-dir/e"
    path.mkdir(parents=True)
    return path


def test_a_missing_file_is_none(tmp_path, volume):
    assert read_env_file(tmp_path, UID, "e", "none") is None
    assert read_env_file(tmp_path, UID, "other", "none") is None


def test_only_a_small_regular_text_file_of_the_volume_is_read(tmp_path, volume):
    (volume / "link").symlink_to("/etc/passwd")
    os.mkfifo(volume / "pipe")
    (volume / "big").write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    (volume / "bytes").write_bytes(b"A='\xff'")
    for name in ("link", "pipe", "big", "bytes"):
        with pytest.raises((ValueError, OSError), match=r"regular|cross-device|more than|UTF-8"):
            read_env_file(tmp_path, UID, "e", name)


def test_what_is_not_a_regular_file_is_not_even_opened(tmp_path, volume, monkeypatch):
    """A container may have made a device there, and opening one can do harm; a socket stands for it here."""
    monkeypatch.chdir(volume)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket")
        with pytest.raises(ValueError, match="is not a regular file"):
            read_env_file(tmp_path, UID, "e", "socket")
