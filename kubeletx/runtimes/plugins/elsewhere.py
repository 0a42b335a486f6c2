"""`FactoryElsewhere`: the factory of a plugin that the agent's process does not import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class FactoryElsewhere:
    """Stands for a factory that only child processes import.

    `name`, `settings`: the factory and the class of its settings, as ``module:name``; empty if they cannot be imported by
    name. A call, as for ``isolation=none``, imports the plugin in this process after all.
    """

    def __init__(self, module: str, name: str, settings: str, make: Callable[..., Any]) -> None:
        """`module`: of the plugin's entry point. `make`: imports the plugin and calls its factory."""
        self.__module__ = module
        self.name = name
        self.settings = settings
        self._make = make

    def __call__(self, *args: Any) -> Any:
        return self._make(*args)
