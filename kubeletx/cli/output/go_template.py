"""Output format ``go-template``: the part of Go's text/template that scripts use with kubectl.

A template is parsed to a list of functions (`_Node`). Each writes its text for a scope: the value of the dot, and the
variables. Present: fields, variables, ``if``, ``with`` and ``range`` with ``else``, pipelines, parentheses, trimming with
``{{-`` and ``-}}``, comments, and the functions in `_FUNCTIONS`, ``and`` and ``or``. Anything else is refused with its name.
Source: Go, text/template; kubectl adds exists and base64decode.
"""

from __future__ import annotations

import re
from collections import ChainMap
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kubeletx.api import InvalidConfig

from . import go_functions
from .go_functions import TemplateError, said
from .go_values import go_text, unquote


class _Scope(NamedTuple):
    dot: Any
    variables: ChainMap[str, Any]

    def inner(self, dot: Any) -> _Scope:
        return _Scope(dot, self.variables.new_child())


_Expression = Callable[[_Scope], Any]
_Node = Callable[[_Scope, list[str]], None]

_QUOTED: Final = r"\"(?:\\.|[^\"\\\n])*\"|`[^`]*`|'(?:\\.|[^'\\\n])*'"
_ACTION: Final = re.compile(
    rf"\{{\{{(?P<left>-(?=\s))?(?P<body>\s*/\*.*?\*/\s*|(?:{_QUOTED}|[^\"`'])*?)(?P<right>(?<=\s)-)?\}}\}}",
    re.S,
)
_TOKEN: Final = re.compile(
    rf"\s*(?P<token>{_QUOTED}|[+-]?\d+(?:\.\d+)?(?![\w.])|\$?\w*(?:\.\w+)+|\$\w*|\w+|\.|:=|=|[|(),])"
)
_REFUSED: Final = ("define", "template", "block", "break", "continue")


class GoTemplate:
    """A parsed template. The constructor raises InvalidConfig, which names the error, for a template with one."""

    def __init__(self, template: str) -> None:
        self._template = template
        self._pieces = _pieces(template)
        self._index = 0
        try:
            self._nodes, stop = self._block()
            if stop:
                raise TemplateError(f"{{{{{stop}}}}} has no if, with or range before it")
        except TemplateError as error:
            raise self._error(error) from None

    def print(self, value: Any) -> str:
        """Return what kubectl prints for an object. `value`: as decoded from JSON. Raises InvalidConfig."""
        texts: list[str] = []
        try:
            _write(self._nodes, _Scope(value, ChainMap({"$": value})), texts)
        except TemplateError as error:
            raise self._error(error) from None
        return "".join(texts)

    def _error(self, error: TemplateError) -> InvalidConfig:
        return InvalidConfig(
            field="-o go-template", problem=f"{self._template!r}: {error}", fix="correct the template"
        )

    def _block(self) -> tuple[list[_Node], str]:
        """Parse until the action ``end`` or ``else``; returns the nodes and that action, empty at the template's end."""
        nodes: list[_Node] = []
        while self._index < len(self._pieces):
            is_action, text = self._pieces[self._index]
            self._index += 1
            if not is_action:
                nodes.append(_text(text))
                continue
            word = (text.split(None, 1) or [""])[0]
            if word in ("end", "else"):
                return nodes, text
            if word in ("if", "with", "range"):
                nodes.append(self._control(word, text[len(word) :]))
            elif word in _REFUSED:
                raise TemplateError(f"{{{{{word}}}}} is not supported")
            elif text and not text.startswith("/*"):
                nodes.append(_output(_Parser(text)))
        return nodes, ""

    def _control(self, word: str, text: str) -> _Node:
        parser = _Parser(text)
        names = parser.declared()
        value = parser.all()
        body, stop = self._block()
        rest: list[_Node] = []
        if stop.startswith("else"):
            again = stop.removeprefix("else").strip()
            if again:  # else if, else with: ends with the same {{end}}
                inner = again.split(None, 1)[0]
                rest = [self._control(inner, again[len(inner) :])]
                return _controls(word, names, value, body, rest)
            rest, stop = self._block()
        if stop != "end":
            raise TemplateError(f"{{{{{word}}}}} has no {{{{end}}}}")
        return _controls(word, names, value, body, rest)


def _pieces(template: str) -> list[tuple[bool, str]]:
    """Split a template to texts (False) and the bodies of actions (True); trims texts as the actions ask."""
    pieces: list[tuple[bool, str]] = []
    position, trims = 0, False
    for match in _ACTION.finditer(template):
        text = template[position : match.start()]
        text = text.lstrip() if trims else text
        pieces.append((False, text.rstrip() if match["left"] else text))
        pieces.append((True, match["body"].strip()))
        position, trims = match.end(), bool(match["right"])
    rest = template[position:]
    pieces.append((False, rest.lstrip() if trims else rest))
    if any("{{" in text for is_action, text in pieces if not is_action):
        raise InvalidConfig(
            field="-o go-template", problem=f"{template!r}: an action is not closed", fix="close it with }}"
        )
    return pieces


def _write(nodes: Sequence[_Node], scope: _Scope, texts: list[str]) -> None:
    for node in nodes:
        node(scope, texts)


def _text(text: str) -> _Node:
    return lambda _, texts: texts.append(text)


def _output(parser: _Parser) -> _Node:
    names = parser.declared(assigns=True)
    value = parser.all()

    def write(scope: _Scope, texts: list[str]) -> None:
        result = value(scope)
        if not names:
            texts.append("<no value>" if result is None else go_text(result))
        elif parser.assigns:
            _map_with(names[0], scope)[names[0]] = result
        else:
            scope.variables[names[0]] = result

    return write


def _map_with(name: str, scope: _Scope) -> Any:
    for variables in scope.variables.maps:
        if name in variables:
            return variables
    raise TemplateError(f"variable {name} is not defined")


def _controls(word: str, names: list[str], value: _Expression, body: list[_Node], rest: list[_Node]) -> _Node:
    def write(scope: _Scope, texts: list[str]) -> None:
        result = value(scope)
        if word == "range":
            pairs = _pairs(result)
            for key, item in pairs:
                inner = scope.inner(item)
                inner.variables.update(zip(names, (key, item) if len(names) > 1 else (item,), strict=False))
                _write(body, inner, texts)
            if not pairs:
                _write(rest, scope.inner(scope.dot), texts)
            return
        inner = scope.inner(result if word == "with" and result else scope.dot)
        inner.variables.update(dict.fromkeys(names[:1], result))
        _write(body if result else rest, inner, texts)

    return write


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, list):
        return list(enumerate(value))
    if isinstance(value, dict):
        return sorted(value.items())
    if value is None:
        return []
    raise TemplateError(f"range cannot iterate over {said(value)}")


class _Parser:
    """Parser of one action's pipeline."""

    def __init__(self, text: str) -> None:
        self.assigns = False
        self._tokens: list[str] = []
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise TemplateError(f"{text[position:].strip()!r} is not understood")
            self._tokens.append(match["token"])
            position = match.end()

    def declared(self, *, assigns: bool = False) -> list[str]:
        """Parse the variables that the action sets, such as ``$i, $one :=``. `assigns`: ``$x =`` is allowed, too."""
        for count in (1, 3):
            if self._tokens[count : count + 1] == [":="] or (
                assigns and self._tokens[count : count + 1] == ["="]
            ):
                names = self._tokens[:count:2]
                self.assigns = self._tokens[count] == "="
                del self._tokens[: count + 1]
                return names
        return []

    def all(self) -> _Expression:
        """Parse everything that is left as one pipeline."""
        value = self._pipeline()
        if self._tokens:
            raise TemplateError(f"{self._tokens[0]!r} is not understood")
        return value

    def _pipeline(self) -> _Expression:
        value = self._command(None)
        while self._tokens[:1] == ["|"]:
            del self._tokens[0]
            value = self._command(value)
        return value

    def _command(self, piped: _Expression | None) -> _Expression:
        if not self._tokens or self._tokens[0] in ("|", ")"):
            raise TemplateError("a command is missing")
        first = self._tokens[0]
        is_function = re.fullmatch(r"[^\W\d]\w*", first) and first not in ("true", "false", "nil")
        if is_function:
            del self._tokens[0]
        values: list[_Expression] = []
        while self._tokens and self._tokens[0] not in ("|", ")"):
            values.append(self._operand())
        if piped is not None:
            values.append(piped)
        if is_function:
            return go_functions.call(first, values)
        if len(values) > 1:
            raise TemplateError(f"{first!r} is no function and takes no argument")
        if first == "nil":
            raise TemplateError("nil is no command")
        return values[0]

    def _operand(self) -> _Expression:
        token = self._tokens.pop(0)
        if token == "(":
            value = self._pipeline()
            if self._tokens[:1] != [")"]:
                raise TemplateError("a ( is not closed")
            del self._tokens[0]
            follows = self._tokens[0] if self._tokens else ""
            return _fields(value, self._tokens.pop(0)) if re.match(r"\.\w", follows) else value
        if token[0] in '"`':
            return _constant(unquote(token))
        if token[0] == "'":
            if len(character := unquote(token)) != 1:
                raise TemplateError(f"{token} is not one character; write a text in double quotes")
            return _constant(ord(character))
        if re.match(r"[+-]?\d", token):
            return _constant(float(token) if "." in token else int(token))
        if token in ("true", "false", "nil"):
            return _constant({"true": True, "false": False}.get(token))
        if token == ".":
            return lambda scope: scope.dot
        if token[0] == ".":
            return _fields(lambda scope: scope.dot, token)
        if token[0] == "$":
            name, dot, path = token.partition(".")
            return _fields(lambda scope: _map_with(name, scope)[name], dot + path)
        raise TemplateError(f"{token!r} is not understood")


def _constant(value: Any) -> _Expression:
    return lambda _: value


def _fields(base: _Expression, path: str) -> _Expression:
    names = path.split(".")[1:]

    def get(scope: _Scope) -> Any:
        value = base(scope)
        for name in names:
            if value is not None and not isinstance(value, dict):
                raise TemplateError(f"{said(value)} has no field {name}")
            value = value.get(name) if value is not None else None
        return value

    return get
