"""Finds the installed distribution that an author names, and its source tree."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

from kubeletx.api import ENTRY_POINT_GROUP, InvalidConfig
from kubeletx.plugins.installed import described


class Checked(msgspec.Struct, frozen=True):
    """The distribution to check. `tree`: its source tree; None: it is not known."""

    name: str
    version: str
    tree: Path | None

    @property
    def tests(self) -> Path | None:
        """Directory of its own tests; None: there is none."""
        tests = self.tree / "tests" if self.tree else None
        return tests if tests and tests.is_dir() else None


def find_distribution(word: str) -> Checked:
    """Return the installed distribution. `word`: its name, or the path of its source tree.

    Raises InvalidConfig if it is not installed in this environment or has no entry point of kubeletx.
    """
    tree = Path(word).resolve() if Path(word).is_dir() else None
    name = _project_name(tree) if tree else word
    try:
        installed = distribution(name)
    except (PackageNotFoundError, ValueError) as error:
        raise InvalidConfig(
            field=f"distribution {name!r}",
            problem="it is not installed in the environment of this kubeletx",
            fix=f"run 'pip install --editable {tree or 'PATH-OF-ITS-SOURCE'}'",
        ) from error
    damage = InvalidConfig(
        field=f"distribution {name!r}", problem="its installed metadata are damaged", fix="install it again"
    )
    try:
        points = [point for point in installed.entry_points if point.group == ENTRY_POINT_GROUP]
        about = Checked(installed.name, installed.version, tree or _editable_tree(installed))
    except Exception as error:  # any, as in `installed_plugins`
        raise damage from error
    if any(described(point).reason for point in points):
        raise damage
    if not points:
        raise InvalidConfig(
            field=f"distribution {name!r}",
            problem=f"it has no entry point in group {ENTRY_POINT_GROUP!r}, so it is no plugin",
            fix=f"add [project.entry-points.{ENTRY_POINT_GROUP}] to its pyproject.toml, and install it again",
        )
    return about


def _project_name(tree: Path) -> str:
    file = tree / "pyproject.toml"
    try:
        return str(tomllib.loads(file.read_text("utf-8"))["project"]["name"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidConfig(
            obj=str(file),
            field="project.name",
            problem=f"it cannot be read ({type(error).__name__}: {error})",
            fix="name the installed distribution instead of a path",
        ) from error


def _editable_tree(installed: Distribution) -> Path | None:
    try:
        about = json.loads(installed.read_text("direct_url.json") or "{}")
    except ValueError:
        return None
    url = urlsplit(str(about.get("url", "")))
    path = Path(unquote(url.path))
    return path if url.scheme == "file" and path.is_dir() else None
