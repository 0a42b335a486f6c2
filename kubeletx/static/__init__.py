"""Pod sources that need no API server: manifest files, a manifest URL, and ``kubeletx apply``."""

from .applied import AppliedSource
from .applied_objects import AppliedObjects
from .file import FileSource
from .local_objects import LocalObjects
from .manifest import InvalidManifest, ManifestReader
from .url import UrlSource

__all__ = [
    "AppliedObjects",
    "AppliedSource",
    "FileSource",
    "InvalidManifest",
    "LocalObjects",
    "ManifestReader",
    "UrlSource",
]
