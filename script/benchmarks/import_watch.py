"""Runs ``kubeletx`` and records what each of its modules costs and whether it is used.

``python -m script.benchmarks.import_watch OUT MODE ARGUMENTS...`` runs ``kubeletx ARGUMENTS...``; when it ends, OUT
has one `Imported` for each module. MODE ``traced``: memory that Python's allocator keeps after an import
(tracemalloc). MODE ``resident``: growth of the process, shared libraries included, and whether a function of the
module is called outside imports. Costs of a module exclude those of the modules that it was the first to import.
"""

from __future__ import annotations

import inspect
import sys
import threading
import tracemalloc
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec

_PAGE_BYTES = 4096


class Imported(msgspec.Struct, kw_only=True):
    """Cost and use of one module.

    `importer`: the module that imported it first. `is_used`: None if that was not recorded.
    """

    name: str
    file: str
    importer: str = ""
    self_bytes: int = 0
    is_used: bool | None = None


class ImportWatch:
    """Measures each import by wrapping the module loaders. `imported`: results by module name."""

    def __init__(self, measure: Callable[[], int]) -> None:
        self.imported: dict[str, Imported] = {}
        self._measure = measure
        self._local = threading.local()

    def install(self) -> None:
        """Wrap the loaders, so that every later import is measured."""
        for loader in (SourceFileLoader, ExtensionFileLoader):
            self._wrap(loader, "exec_module", lambda module: str(module.__spec__.name))
        self._wrap(ExtensionFileLoader, "create_module", lambda spec: str(spec.name))

    def is_importing(self) -> bool:
        """True while this thread executes a module."""
        return bool(self._stack())

    def _stack(self) -> list[tuple[str, int]]:
        """Modules that this thread is importing, outermost first, each with the bytes that its inner imports took."""
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        stack: list[tuple[str, int]] = self._local.stack
        return stack

    def _wrap(self, loader: Any, method: str, name_of: Callable[[Any], str]) -> None:
        original = getattr(loader, method)

        def watched(this: Any, subject: Any) -> Any:
            name, stack = name_of(subject), self._stack()
            importer = stack[-1][0] if stack else ""
            one = self.imported.setdefault(name, Imported(name=name, file=this.path, importer=importer))
            stack.append((name, 0))
            before = self._measure()
            try:
                return original(this, subject)
            finally:
                grown = self._measure() - before
                inner = stack.pop()[1]
                one.self_bytes += grown - inner
                if stack:
                    outer, taken = stack[-1]
                    stack[-1] = (outer, taken + grown)

        setattr(loader, method, watched)


class UseWatch:
    """Collects source files whose functions are called outside imports."""

    def __init__(self, imports: ImportWatch) -> None:
        self.files: set[str] = set()
        self._seen: set[CodeType] = set()
        self._imports = imports

    def install(self) -> None:
        """Record function calls of this thread and of threads that start later."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or code in self._seen or self._imports.is_importing():
            return
        self._seen.add(code)
        if code.co_flags & inspect.CO_OPTIMIZED:  # else the body of a module or class
            self.files.add(code.co_filename)


def resident_bytes() -> int:
    """Resident memory of this process."""
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * _PAGE_BYTES


def main() -> None:
    """Run the command line; writes the modules to OUT even if it fails."""
    out, mode, *arguments = sys.argv[1:]
    uses = None
    if mode == "traced":
        tracemalloc.start(1)
        imports = ImportWatch(lambda: tracemalloc.get_traced_memory()[0])
    else:
        imports = ImportWatch(resident_bytes)
        uses = UseWatch(imports)
        uses.install()
    imports.install()
    sys.argv = ["kubeletx", *arguments]
    from kubeletx.cli.main import main as kubeletx

    try:
        kubeletx()
    finally:
        sys.setprofile(None)
        for one in imports.imported.values():
            one.is_used = None if uses is None else one.file in uses.files
        Path(out).write_bytes(msgspec.json.encode(list(imports.imported.values())))


if __name__ == "__main__":
    main()
