"""Rules for flexVolume sources: the driver's name, and options that an executable driver can get.

Source: kubernetes, pkg/apis/core/validation (validateFlexVolumeSource). `option_problem` is also for persistent volumes
and pods of a cluster, since an option in a namespace of Kubernetes would replace what the agent itself tells the driver.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from ..types.volumes import FlexVolumeSource
from . import words
from .problems import Problems, show

MAX_OPTIONS_BYTES: Final = 128 * 1024
"""Maximum size of all options as JSON: they are one argument of a program. Source: execve(2), MAX_ARG_STRLEN."""
_LONGEST_SHOWN: Final = 64
_RESERVED: Final = (".kubernetes.io", ".k8s.io")

Problem = tuple[str, str, str]
"""Field below the options, such as ``[size]``, what is wrong with it, and what to do."""


def check_flex_volume(field: str, source: FlexVolumeSource, problems: Problems) -> None:
    """Check the source of a volume. `field`: its path, such as ``spec.volumes[0].flexVolume``."""
    problems.word(f"{field}.driver", source.driver, words.driver_name, "write VENDOR/DRIVER")
    if (found := options_problem(source.options)) is not None:
        where, problem, fix = found
        problems.add(f"{field}.options{where}", problem, fix)


def options_problem(options: Mapping[str, object]) -> Problem | None:
    """Return the first problem of a volume's options; None if they are valid."""
    for key, value in options.items():
        if not isinstance(value, str) or "\0" in key or "\0" in value:
            return f"[{_shown(key)}]", "is no text without NUL characters", "write a string"
        if f".{key.partition('/')[0].lower()}".endswith(_RESERVED):
            fix = "use a key without '/', or another namespace"
            return f"[{_shown(key)}]", "is in a namespace of Kubernetes, which is reserved", fix
    if len(json.dumps(options)) > MAX_OPTIONS_BYTES:
        problem = f"are more than {MAX_OPTIONS_BYTES} bytes as JSON, which no program can get as an argument"
        return "", problem, "shorten them, or use a file in another volume"
    return None


def _shown(key: str) -> str:
    return key if key.isprintable() and len(key) <= _LONGEST_SHOWN else show(key)
