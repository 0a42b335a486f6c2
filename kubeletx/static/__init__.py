"""Pod sources that need no API server: manifest files, a manifest URL, and ``kubeletx apply``."""

from .applied import AppliedSource
from .file import FileSource
from .manifest import InvalidManifest, ManifestReader
from .url import UrlSource

__all__ = ["AppliedSource", "FileSource", "InvalidManifest", "ManifestReader", "UrlSource"]
