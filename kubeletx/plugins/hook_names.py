"""Finds hooks of a plugin that pluggy would ignore: without `hookimpl`, or with a name that no hook has."""

from __future__ import annotations

from typing import Any, Final

from kubeletx.api import InvalidConfig, hookspecs
from kubeletx.runtimes.plugins.identity import PluginIdentity
from kubeletx.runtimes.plugins.register_arguments import did_you_mean

HOOKS: Final = tuple(name for name in vars(hookspecs) if name.startswith("kubeletx_register_"))
"""Names of all hooks."""

_MARK = f"{hookspecs.PROJECT}_impl"
_SPEC = f"{hookspecs.PROJECT}_spec"


def check_hook_names(plugin: object, identity: PluginIdentity) -> None:
    """Raise InvalidConfig for a function that looks like a hook and is none.

    `plugin`: the module or object of the entry point. An unmarked function is examined only if its name is that of a
    hook, or nearly. A marked function with ``optionalhook=True`` may have any name.
    """
    for name in dir(plugin):
        attribute: Any = getattr(plugin, name, None)
        if not callable(attribute) or hasattr(attribute, _SPEC):
            continue
        mark = getattr(attribute, _MARK, None)
        if mark is None:
            _check_unmarked(name, identity)
        elif (
            isinstance(mark, dict)
            and not mark.get("optionalhook")
            and (mark.get("specname") or name) not in HOOKS
        ):
            raise _unknown(name, identity)


def no_hooks(plugin: object) -> str:
    """Return why a plugin registers nothing: it has no hook, or its hooks call `register` for nothing."""
    has_hook = any(hasattr(getattr(plugin, name, None), _MARK) for name in dir(plugin))
    if has_hook:
        return "registers nothing"
    return f"registers nothing: no function has @hookimpl and the name of a hook, such as {HOOKS[0]}"


def _check_unmarked(name: str, identity: PluginIdentity) -> None:
    if name in HOOKS:
        raise InvalidConfig(
            obj=str(identity),
            field=name,
            problem="the function has no @hookimpl, so it is never called",
            fix="write `from kubeletx.api import hookimpl`, and @hookimpl on the line above the function",
        )
    if name.startswith("kubeletx_register") and did_you_mean(name, HOOKS, 0.85):
        raise _unknown(name, identity)


def _unknown(name: str, identity: PluginIdentity) -> InvalidConfig:
    return InvalidConfig(
        obj=str(identity),
        field=name,
        problem=f"it is not a hook{did_you_mean(name, HOOKS, 0.5)}",
        fix=f"hooks are: {', '.join(HOOKS)}",
    )
