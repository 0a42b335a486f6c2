from __future__ import annotations

import os
from pathlib import Path

import pytest

from kubeletx.pods.logs.format import format_record
from kubeletx.pods.logs.termination_messages import read_message


def write_log(path: Path, *texts: str) -> Path:
    path.write_bytes(b"".join(format_record(1, b"stdout", text.encode(), partial=False) for text in texts))
    return path


def test_the_end_of_the_file_is_the_message(tmp_path):
    file = tmp_path / "message"
    file.write_text("a" * 10 + "b" * 4096)
    assert read_message(file, policy="File", failed=True, log_file=None) == "b" * 4096


def test_a_missing_file_is_not_a_message(tmp_path):
    assert read_message(tmp_path / "none", policy=None, failed=True, log_file=None) == ""


def test_an_empty_file_of_a_failed_container_is_replaced_by_its_log(tmp_path):
    log = write_log(tmp_path / "0.log", *(f"line {number}" for number in range(100)))
    text = read_message(tmp_path / "none", policy="FallbackToLogsOnError", failed=True, log_file=log)
    assert text.splitlines()[0] == "line 20"
    assert text.endswith("line 99\n")


def test_at_most_2048_bytes_of_the_log_are_taken(tmp_path):
    log = write_log(tmp_path / "0.log", *("x" * 100 for _ in range(80)))
    text = read_message(tmp_path / "none", policy="FallbackToLogsOnError", failed=True, log_file=log)
    assert len(text) == 2048


@pytest.mark.parametrize(
    ("policy", "failed"), [("File", True), ("FallbackToLogsOnError", False), (None, True)]
)
def test_the_log_is_left_alone_otherwise(tmp_path, policy, failed):
    log = write_log(tmp_path / "0.log", "text")
    assert read_message(tmp_path / "none", policy=policy, failed=failed, log_file=log) == ""


def test_a_link_or_pipe_in_place_of_the_file_is_refused(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    link, pipe = tmp_path / "link", tmp_path / "pipe"
    link.symlink_to(secret)
    os.mkfifo(pipe)
    for path in (link, pipe):
        text = read_message(path, policy="File", failed=True, log_file=None)
        assert text.startswith("Error on reading termination message")
