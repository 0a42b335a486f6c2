"""Programs that the shell scripts start cannot ask, and Ctrl-C ends them."""

from __future__ import annotations

import os
import pty
import select
import signal
from pathlib import Path

COMMON = Path(__file__).parents[3] / "script" / "_common.sh"
SCRIPT = f"""
set -euo pipefail
source {COMMON}
unattended sh -c 'cat; (: </dev/tty) 2>/dev/null || exit 3' || echo "no terminal: $?"
unattended sh -c 'sleep 60 & echo "child $!"; wait'
echo not reached
"""


def test_a_program_has_no_terminal_and_an_interrupt_ends_it_with_its_children() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # bash cannot trap a signal that it inherits as ignored
        os.execvp("bash", ["bash", "-c", SCRIPT])
    with os.fdopen(terminal, "r+b", buffering=0) as opened:
        output = b""
        while not output.endswith(b"\n") or b"child " not in output:
            output += opened.read(1024)
        child = os.pidfd_open(int(output.split()[-1]))
        opened.write(b"\x03")
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert b"no terminal: 3" in output
    assert status in (130, -signal.SIGINT)  # bash exits, or ends by the signal itself
    assert select.select([child], [], [], 30)[0] == [child], "the child of the program has ended"
    os.close(child)
