"""Metadata of fence agents, and the standard input that an agent gets.

An agent prints its parameters and actions as XML for ``action=metadata``. They decide which parameters it gets, in the
spelling that it prefers, and whether its success can be verified. Each line of the input is ``key=value``; agents that
use the library of fence-agents trim the line and remove one pair of quotes around the value.

Source: ClusterLabs/fence-agents, doc/FenceAgentAPI.md and lib/fencing.py.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final
from xml.etree import ElementTree

import msgspec

from kubeletx.api.errors import InvalidConfig

TRUE: Final = frozenset({"1", "yes", "on", "true"})
FALSE: Final = frozenset({"0", "no", "off", "false"})
_OLD_NAMES: Final = {
    "ipaddr": "ip",
    "login": "username",
    "passwd": "password",
    "passwd_script": "password_script",
    "port": "plug",
    "option": "action",
}
_OLD_ACTIONS: Final = {"enable": "on", "disable": "off"}
_INSTEAD: Final = {"plug": ("uuid", "key")}
"""Parameters with which an agent needs no plug, although its metadata requires one."""
_WITHHELD: Final = frozenset(
    {"action", "help", "version", "quiet", "verbose", "verbose_level", "debug", "debug_file", "boto3_debug"}
)
"""Never sent: with debugging, agents write passwords to the system's log; quiet ones do not say why they fail."""
_SILENTLY_IGNORED: Final = frozenset({"action", "nodename", "storage"})
_LINE_BREAKS: Final = re.compile(r"[\r\n\0]")


class AgentParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter of an agent. `kind`: boolean, string, second, integer or select. `default` None: it has none."""

    kind: str = "string"
    required: bool = False
    default: str | None = None
    choices: tuple[str, ...] = ()


class AgentMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters and actions of an agent. `names`: preferred name of each parameter by all its names, with underscores."""

    agent: str
    parameters: Mapping[str, AgentParameter]
    names: Mapping[str, str]
    actions: frozenset[str]

    @property
    def is_fabric(self) -> bool:
        """Return True if ``off`` cuts the node off from a network or storage and leaves its power on."""
        return "reboot" not in self.actions

    @property
    def has_status(self) -> bool:
        return "status" in self.actions

    def action(self, given: Mapping[str, str]) -> str:
        """Return the action to carry out: of the parameters, or else the agent's default."""
        wanted = next((value for name, value in given.items() if self._name(name) == "action"), "").lower()
        default = self.parameters.get("action", AgentParameter()).default
        action = _OLD_ACTIONS.get(wanted, wanted) or default or ("off" if self.is_fabric else "reboot")
        if action not in self.actions:
            raise self._bad("action", f"is {action!r}", f"choose one of {', '.join(sorted(self.actions))}")
        return action

    def arguments(self, given: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
        """Return the parameters to send, and the names of ignored parameters.

        Old names become the preferred ones; a boolean is sent only if it is true, since agents test only its
        presence. Raises InvalidConfig.
        """
        values: dict[str, str] = {}
        ignored = []
        for written, value in given.items():
            name = self._name(written)
            parameter = self.parameters.get(name)
            if parameter is None or name in _WITHHELD:
                ignored += [] if name in _SILENTLY_IGNORED else [written]
                continue
            values.pop(name, None)
            if (checked := self._checked(written, value, parameter)) is not None:
                values[name] = checked
        for name, parameter in self.parameters.items():
            is_needed = parameter.required and parameter.default is None and name not in _WITHHELD
            if is_needed and not any(given in values for given in (name, *_INSTEAD.get(name, ()))):
                fix = f"add {name}= to the method, its template or its secret"
                raise self._bad(name, "is missing", fix)
        return values, tuple(ignored)

    def default(self, name: str) -> str:
        return self.parameters.get(name, AgentParameter()).default or ""

    def _name(self, written: str) -> str:
        name = written.strip().replace("-", "_")
        return (
            self.names.get(name) or self.names.get(_OLD_NAMES.get(name, name)) or _OLD_NAMES.get(name, name)
        )

    def _checked(self, name: str, value: str, parameter: AgentParameter) -> str | None:
        """Return the value to send; None: nothing is sent."""
        if _LINE_BREAKS.search(value):
            raise self._bad(name, "has a line break", "write it in one line, or give the agent a file")
        word = value.strip().lower()
        if parameter.kind == "boolean":
            if word not in TRUE | FALSE:
                raise self._bad(name, f"is {value!r}", "write true or false")
            return "1" if word in TRUE else None
        if parameter.kind in ("integer", "second") and not re.fullmatch(r"[+-]?\d+", word):
            raise self._bad(name, f"is {value!r}", "write a whole number")
        if parameter.choices and word not in (choice.lower() for choice in parameter.choices):
            raise self._bad(name, f"is {value!r}", f"choose one of {', '.join(parameter.choices)}")
        return value

    def _bad(self, name: str, problem: str, fix: str) -> InvalidConfig:
        return InvalidConfig(obj=self.agent, field=name, problem=problem, fix=fix)


def parse_metadata(agent: str, data: bytes) -> AgentMetadata:
    """Read the XML that an agent printed. Raises InvalidConfig."""
    try:
        root = ElementTree.fromstring(data.strip())
    except (ElementTree.ParseError, ValueError) as error:
        raise _unreadable(agent, f"are not XML: {error}") from error
    actions = frozenset(action.get("name", "") for action in root.iterfind("actions/action"))
    if root.tag != "resource-agent" or not actions:
        raise _unreadable(agent, "name no action")
    found = [(_plain(element.get("name")), element) for element in root.iterfind("parameters/parameter")]
    names = {name: name for name, _ in found}
    for name, element in found:
        if obsolete := _plain(element.get("obsoletes")):
            names[obsolete] = name
    parameters = {name: _parameter(element) for name, element in found if names[name] == name}
    return AgentMetadata(agent=agent, parameters=parameters, names=names, actions=actions)


def standard_input(action: str, arguments: Mapping[str, str] | None = None) -> bytes:
    """Return an agent's input. `arguments`: values without line breaks."""
    lines = [f"action={action}", *(f"{name}={_quoted(value)}" for name, value in (arguments or {}).items())]
    return "".join(f"{line}\n" for line in lines).encode()


def _quoted(value: str) -> str:
    """Return the value in quotes if the agent would change it otherwise; agents in C and shell keep quotes."""
    is_in_quotes = len(value) > 1 and value[0] == value[-1] == '"'
    return f'"{value}"' if is_in_quotes or value != value.strip() else value


def _plain(name: str | None) -> str:
    return (name or "").replace("-", "_")


def _parameter(element: ElementTree.Element) -> AgentParameter:
    content = element.find("content")
    options: Iterable[ElementTree.Element] = () if content is None else content.iterfind("option")
    return AgentParameter(
        kind="string" if content is None else content.get("type", "string"),
        required=element.get("required") == "1",
        default=None if content is None else content.get("default"),
        choices=tuple(option.get("value", "") for option in options),
    )


def _unreadable(agent: str, problem: str) -> InvalidConfig:
    fix = "it must print resource-agent XML for action=metadata; correct or reinstall it"
    return InvalidConfig(obj=agent, field="metadata", problem=problem, fix=fix)
