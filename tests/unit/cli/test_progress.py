"""The progress line of a pull."""

from __future__ import annotations

import io

from kubeletx.cli.output.progress import ProgressLine, progress_text

MB = 1_000_000


def test_a_known_size_has_a_bar_and_a_share() -> None:
    assert progress_text("nginx", 31 * MB, 62 * MB, 4.7) == (
        "nginx  [==========>         ]   50 %  31MB of 62MB  4 s"
    )
    assert "[====================]  100 %" in progress_text("nginx", MB, MB, 0)


def test_an_unknown_size_shows_the_bytes_and_nothing_fetched_only_the_time() -> None:
    assert progress_text("nginx", 3 * MB, None, 61) == "nginx  3MB  61 s"
    assert progress_text("nginx resolving", 0, None, 0) == "nginx resolving  0 s"


def test_control_characters_of_a_message_do_not_reach_the_terminal() -> None:
    assert "\x1b" not in progress_text("a\x1b[2Jb", 0, None, 0)


def test_the_line_fits_the_terminal_is_redrawn_rarely_and_erased_at_the_end() -> None:
    now = [0.0]
    out = io.StringIO()
    with ProgressLine(out, now=lambda: now[0], width=lambda: 12) as line:
        line.show("a-long-image-name", 0, None)
        line.show("not drawn", 0, None)
        now[0] = 0.2
        line.show("drawn", 0, None)
    assert out.getvalue() == "\r\x1b[Ka-long-imag" + "\r\x1b[Kdrawn  0 s" + "\r\x1b[K"
