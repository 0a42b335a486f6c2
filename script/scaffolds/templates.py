"""Makes templates from the source files of the example plugins: the names of the example become placeholders.

So the code that ``kubeletx plugin new`` writes is the code that the example's own tests run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[2]
TEMPLATES: Final = ROOT / "kubeletx" / "cli" / "commands" / "plugin" / "templates"


class Example(msgspec.Struct, frozen=True):
    """An example plugin whose code is the template of one kind.

    `folder`: its folder below examples/plugins. `name`: what it registers. `class_name`: its main class.
    """

    folder: str
    name: str
    class_name: str


EXAMPLES: Final = {
    "runtime": Example("local-process", "process", "ProcessRuntime"),
    "health-check": Example("disk-space", "disk-space", "DiskSpace"),
    "pod-source": Example("directory-pods", "directory-pods", "DirectoryPods"),
    "admission-check": Example("image-registry", "image-registry", "ImageRegistry"),
    "panel": Example("host-load", "host-load", "HostLoad"),
    "volume-driver": Example("ramdisk", "ramdisk", "Ramdisk"),
    "remedy": Example("rack-power", "rack-power", "RackPower"),
}


def code_templates() -> dict[str, str]:
    """Return the text of each template by its path below `TEMPLATES`, such as ``panel/plugin.py.txt``."""
    return {
        f"{kind}/{path.name}.txt": as_template(path.read_text(), example)
        for kind, example in EXAMPLES.items()
        for path in sorted((ROOT / "examples" / "plugins" / example.folder / "src").rglob("[!_]*.py"))
    }


def as_template(text: str, example: Example) -> str:
    """Replace the names of the example by placeholders."""
    for quote in ('"', "``"):
        text = text.replace(f"{quote}{example.name}{quote}", f"{quote}@NAME@{quote}")
    for shape in ("{}:///", "plugins.{}``", "example.com/{}", "{}.example.com"):
        text = text.replace(shape.format(example.name), shape.format("@NAME@"))
    text = text.replace(f"kubeletx_{example.folder.replace('-', '_')}", "@MODULE@")
    return text.replace(example.class_name, "@CLASS@")
