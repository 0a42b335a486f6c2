"""Makes the files of a new plugin from the templates of this package.

Templates are text with placeholders such as ``@NAME@``. Those of the code are made from the example plugins of the
repository (``python -m script.scaffolds``), so a new plugin begins as an example that works.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from typing import Final

import msgspec

COMMON: Final = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "ci.sh": "ci.sh",
    "gitignore": ".gitignore",
    "test_registration.py": "tests/test_registration.py",
}
"""Templates that all kinds share, with the paths of their files."""


class PluginKind(msgspec.Struct, frozen=True):
    """Properties in which plugins of different kinds differ.

    `words`: name of the kind in messages. `hook`: name of the hook function. `code`: files of the package. `page`: documentation of
    the hook in the repository of kubeletx.
    """

    words: str
    hook: str
    code: tuple[str, ...]
    page: str


KINDS: Final = {
    "runtime": PluginKind(
        "runtime",
        "kubeletx_register_runtimes",
        ("plugin.py", "runtime.py", "processes.py"),
        "docs/plugin-authors.md",
    ),
    "health-check": PluginKind(
        "health check",
        "kubeletx_register_health_checks",
        ("plugin.py", "check.py"),
        "docs/plugins/health-checks.md",
    ),
    "pod-source": PluginKind(
        "pod source",
        "kubeletx_register_pod_sources",
        ("plugin.py", "source.py"),
        "docs/plugins/pod-sources.md",
    ),
    "admission-check": PluginKind(
        "admission check",
        "kubeletx_register_admission_checks",
        ("plugin.py", "check.py"),
        "docs/plugins/admission-checks.md",
    ),
    "panel": PluginKind(
        "panel", "kubeletx_register_panels", ("plugin.py", "panel.py"), "docs/plugins/panels.md"
    ),
    "volume-driver": PluginKind(
        "volume driver",
        "kubeletx_register_volume_drivers",
        ("plugin.py", "driver.py"),
        "docs/plugins/volume-drivers.md",
    ),
    "remedy": PluginKind(
        "remedy", "kubeletx_register_remedies", ("plugin.py", "remedy.py"), "docs/plugins/remedies.md"
    ),
}


def new_plugin(name: str, kind: str, version: str) -> Mapping[str, str]:
    """Return the text of each file of a new plugin, by its path in the new directory.

    `name`: the name that the plugin registers. `kind`: a key of `KINDS`. `version`: version of kubeletx, from which the
    required range of versions follows.
    """
    about = KINDS[kind]
    module = f"kubeletx_{name.replace('-', '_')}"
    words = {
        "FILES": _template(f"{kind}/files.md").strip(),
        "CAPABILITIES": _template(f"{kind}/capabilities.md").strip(),
        "NAME": name,
        "MODULE": module,
        "DISTRIBUTION": f"kubeletx-{name}",
        "CLASS": _class_name(name, kind),
        "KIND": about.words,
        "HOOK": about.hook,
        "PAGE": about.page,
        "BOUND": required_range(version),
    }
    templates = {f"common/{source}": path for source, path in COMMON.items()}
    templates |= {f"{kind}/{file}": f"src/{module}/{file}" for file in about.code}
    templates[f"{kind}/test_contract.py"] = "tests/test_contract.py"
    made = {path: _filled(_template(source), words) for source, path in templates.items()}
    package = f'"""A {about.words} plugin of kubeletx: {name}."""\n'
    return made | {f"src/{module}/__init__.py": package, f"src/{module}/py.typed": ""}


def required_range(version: str) -> str:
    """Return the versions of kubeletx with the same contract as `version`, such as ``>=0.1,<0.2`` for 0.1.3."""
    major, minor, *_ = version.split(".")
    return f">={major}.{minor},<{major}.{int(minor) + 1}"


def _class_name(name: str, kind: str) -> str:
    camel = "".join(word.capitalize() for word in name.split("-"))
    return camel + "".join(word.capitalize() for word in kind.split("-"))


def _template(path: str) -> str:
    return resources.files(__package__).joinpath("templates", *f"{path}.txt".split("/")).read_text("utf-8")


def _filled(text: str, words: Mapping[str, str]) -> str:
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text
