"""What the agent's process must not carry."""

from __future__ import annotations

import subprocess
import sys


def test_the_agent_does_not_load_what_only_the_command_line_needs() -> None:
    code = """
import sys
from kubeletx.linux import lean_imports
lean_imports.import_structlog()
import kubeletx.cli.main
import kubeletx.agent.main
print(sorted({"rich", "pygments", "cryptography.x509", "matplotlib", "difflib"} & sys.modules.keys()))
import rich.console
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_garbage_collector_is_rare_before_the_agent_is_imported() -> None:
    code = """
import gc
from kubeletx.cli.options import run
run.import_structlog = lambda: print(gc.get_threshold() == run.GC_THRESHOLDS)
run.import_aiohttp = lambda: 1 / 0
try:
    run.run(None)
except ZeroDivisionError:
    pass
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"
