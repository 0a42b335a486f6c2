"""Output format ``go-template``: the part of Go's text/template that scripts use with kubectl.

Present: fields, variables, ``if``, ``with`` and ``range`` with ``else``, pipelines, parentheses, trimming with ``{{-`` and
``-}}``, comments, and the functions of `_FUNCTIONS`, ``and`` and ``or``. Anything else is refused with its name. An
expression is parsed to a function of the scope: the value of the dot, and the variables. Source: Go, text/template.
"""

from __future__ import annotations

import json
import operator
import re
from collections import ChainMap
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, Final, NamedTuple

from kubeletx.api import InvalidConfig

from .go_values import go_text, unquote

_QUOTED: Final = r"\"(?:\\.|[^\"\\\n])*\"|`[^`]*`"
_ACTION: Final = re.compile(
    rf"\{{\{{(?P<left>-(?=\s))?(?P<body>\s*/\*.*?\*/\s*|(?:{_QUOTED}|[^\"`])*?)(?P<right>(?<=\s)-)?\}}\}}",
    re.S,
)
_TOKEN: Final = re.compile(
    rf"\s*({_QUOTED}|[+-]?\d+(?:\.\d+)?(?![\w.])|\$?\w*(?:\.\w+)+|\$\w*|\w+|\.|:=|=|[|(),])"
)
_VERB: Final = re.compile(r"%([-+ 0]*\d*(?:\.\d+)?)(.)", re.S)
_CONTROLS: Final = ("if", "with", "range")


class _TemplateError(Exception):
    """A template cannot be parsed or executed; its text is the reason."""


_Scope = ChainMap[str, Any]
"""Variables by name; the innermost block comes first. The dot is the variable with the empty name."""
_Expression = Callable[[_Scope], Any]


class _Action(NamedTuple):
    """An action in braces. `word`: if, with, range, or empty. `names`: variables that it sets, with `sign` := or =."""

    word: str
    names: list[str]
    sign: str
    value: _Expression
    body: Sequence[str | _Action] = ()
    rest: Sequence[str | _Action] = ()


class GoTemplate:
    """A parsed template. The constructor raises InvalidConfig, which names the error, for a template with one."""

    def __init__(self, template: str) -> None:
        self._template = template
        try:
            self._nodes, stop = _block(_pieces(template))
            if stop:
                raise _TemplateError(f"{{{{{stop}}}}} has no if, with or range before it")
        except _TemplateError as error:
            raise self._error(error) from None

    def print(self, value: Any) -> str:
        """Return what kubectl prints for an object. `value`: as decoded from JSON. Raises InvalidConfig."""
        texts: list[str] = []
        try:
            _write(self._nodes, ChainMap({"": value, "$": value}), texts)
        except _TemplateError as error:
            raise self._error(error) from None
        return "".join(texts)

    def _error(self, error: _TemplateError) -> InvalidConfig:
        return InvalidConfig(
            field="-o go-template", problem=f"{self._template!r}: {error}", fix="correct the template"
        )


# --- execution ---


def _write(nodes: Sequence[str | _Action], scope: _Scope, texts: list[str]) -> None:
    for node in nodes:
        if isinstance(node, str):
            texts.append(node)
            continue
        result = node.value(scope)
        if node.word == "range":
            items = _pairs(result)
            for pair in items:
                names = dict(zip(node.names, pair if len(node.names) > 1 else pair[1:], strict=False))
                _write(node.body, scope.new_child({"": pair[1], **names}), texts)
            if not items:
                _write(node.rest, scope.new_child(), texts)
        elif node.word:
            inner = scope.new_child(dict.fromkeys(node.names, result))
            if node.word == "with" and result:
                inner[""] = result
            _write(node.body if result else node.rest, inner, texts)
        elif node.names:
            block = scope if node.sign == ":=" else _block_of(node.names[0], scope)
            block[node.names[0]] = result
        else:
            texts.append("<no value>" if result is None else go_text(result))


def _block_of(name: str, scope: _Scope) -> MutableMapping[str, Any]:
    """Return the variables of the block in which this one is defined."""
    block = next((variables for variables in scope.maps if name in variables), None)
    if block is None:
        raise _TemplateError(f"variable {name} is not defined")
    return block


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    match value:
        case list():
            return list(enumerate(value))
        case dict():
            return sorted(value.items())
        case None:
            return []
    raise _TemplateError(f"range cannot iterate over {go_text(value)!r}")


# --- parser of blocks ---


def _pieces(template: str) -> Iterator[tuple[bool, str]]:
    """Split a template to texts (False) and the bodies of actions (True); trims texts as the actions ask."""
    position, trims = 0, False
    for match in (*_ACTION.finditer(template), None):
        text = template[position : match.start() if match else None]
        if "{{" in text:
            raise _TemplateError("an action is not closed with }}")
        text = text.lstrip() if trims else text
        yield False, text.rstrip() if match and match["left"] else text
        if match:
            yield True, match["body"].strip()
            position, trims = match.end(), bool(match["right"])


def _block(pieces: Iterator[tuple[bool, str]]) -> tuple[list[str | _Action], str]:
    """Parse until the action ``end`` or ``else``; returns the nodes and that action, empty at the template's end."""
    nodes: list[str | _Action] = []
    for is_action, text in pieces:
        word = (text.split(None, 1) or [""])[0]
        if not is_action:
            nodes.append(text)
        elif word in ("end", "else"):
            return nodes, text
        elif word in _CONTROLS:
            nodes.append(_control(word, text[len(word) :], pieces))
        elif text and not text.startswith("/*"):
            nodes.append(_action("", text))
    return nodes, ""


def _control(word: str, text: str, pieces: Iterator[tuple[bool, str]]) -> _Action:
    action = _action(word, text)
    body, stop = _block(pieces)
    rest: list[str | _Action] = []
    if stop.startswith("else "):  # else if, else with: ends with the same {{end}}
        again, _, condition = stop.removeprefix("else ").strip().partition(" ")
        if again not in _CONTROLS:
            raise _TemplateError(f"{{{{{stop}}}}} is not understood")
        rest = [_control(again, condition, pieces)]
    else:
        if stop == "else":
            rest, stop = _block(pieces)
        if stop != "end":
            raise _TemplateError(f"{{{{{word}}}}} has no {{{{end}}}}")
    return action._replace(body=body, rest=rest)


# --- parser of expressions ---


def _action(word: str, text: str) -> _Action:
    tokens: list[str] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise _TemplateError(f"{text[position:].strip()!r} is not understood")
        tokens.append(match[1])
        position = match.end()
    names, sign = _declared(tokens)
    value = _pipeline(tokens)
    if tokens:
        raise _TemplateError(f"{tokens[0]!r} is not understood")
    return _Action(word, names, sign, value)


def _declared(tokens: list[str]) -> tuple[list[str], str]:
    """Remove the variables that an action sets, such as ``$i, $one :=``."""
    for count in (1, 3):
        if tokens[count : count + 1] in ([":="], ["="]):
            names, sign = tokens[:count:2], tokens[count]
            del tokens[: count + 1]
            return names, sign
    return [], ""


def _pipeline(tokens: list[str]) -> _Expression:
    value = _command(tokens, ())
    while tokens[:1] == ["|"]:
        del tokens[0]
        value = _command(tokens, (value,))
    return value


def _command(tokens: list[str], piped: tuple[_Expression, ...]) -> _Expression:
    name = ""
    if tokens and re.match(r"[^\W\d]", tokens[0]) and tokens[0] not in ("true", "false"):
        name = tokens.pop(0)
    values: list[_Expression] = []
    while tokens and tokens[0] not in ("|", ")"):
        values.append(_operand(tokens))
    values += piped
    if name:
        return _call(name, values)
    if len(values) != 1:
        raise _TemplateError("only a function has arguments" if values else "a command is missing")
    return values[0]


def _operand(tokens: list[str]) -> _Expression:
    token = tokens.pop(0)
    if token == "(":
        value = _pipeline(tokens)
        if not tokens or tokens.pop(0) != ")":
            raise _TemplateError("a ( is not closed")
        path = tokens.pop(0) if tokens and re.match(r"\.\w", tokens[0]) else ""
        return _fields(value, path)
    if token[0] in ".$":
        name, _, path = token.partition(".")
        return _fields(lambda scope: _block_of(name, scope)[name], path)
    if token[0] in '"`':
        return _constant(unquote(token))
    if re.match(r"[+-]?\d", token):
        return _constant(float(token) if "." in token else int(token))
    if token in ("true", "false"):
        return _constant(token == "true")
    raise _TemplateError(f"{token!r} is not understood")


def _constant(value: Any) -> _Expression:
    return lambda _: value


def _fields(base: _Expression, path: str) -> _Expression:
    def get(scope: _Scope) -> Any:
        value = base(scope)
        for name in filter(None, path.split(".")):
            if value is not None and not isinstance(value, dict):
                raise _TemplateError(f"{go_text(value)!r} has no field {name}")
            value = value.get(name) if value is not None else None
        return value

    return get


# --- functions ---


def _call(name: str, values: Sequence[_Expression]) -> _Expression:
    """Return an expression that calls the function with these arguments. Raises _TemplateError for an unknown name."""
    if name in ("and", "or"):
        return _shortcut(name == "or", values)
    function = _FUNCTIONS.get(name)
    if function is None:
        known = ", ".join(sorted((*_FUNCTIONS, "and", "or")))
        raise _TemplateError(f"function {name!r} is not supported; supported are {known}")

    def call(scope: _Scope) -> Any:
        arguments = [value(scope) for value in values]
        try:
            return function(*arguments)
        except (TypeError, ValueError, LookupError) as error:
            given = ", ".join(go_text(each)[:40] for each in arguments)
            raise _TemplateError(f"{name} of {given}: {error}") from None

    return call


def _shortcut(ends: bool, values: Sequence[_Expression]) -> _Expression:
    """Return the expression for ``or`` (`ends` True) or ``and``: later arguments are not evaluated without need."""

    def evaluate(scope: _Scope) -> Any:
        result = None
        for value in values:
            result = value(scope)
            if bool(result) is ends:
                break
        return result

    return evaluate


def _index(value: Any, *keys: Any) -> Any:
    for key in keys:
        if isinstance(value, dict):
            value = value.get(key)
        elif type(key) is int and key < 0:
            raise IndexError("the index is negative")
        else:
            value = value[key]
    return value


def _len(value: Any) -> int:
    return len(value.encode() if isinstance(value, str) else value)


def _print(*values: Any) -> str:
    texts = ""
    for number, value in enumerate(values):
        needs_space = number and not isinstance(value, str) and not isinstance(values[number - 1], str)
        texts += (" " if needs_space else "") + go_text(value)
    return texts


def _printf(template: str, *values: Any) -> str:
    """Format with Go's verbs v, s, q, d, t and f, with Python's flags."""
    rest = iter(values)

    def fill(match: re.Match[str]) -> str:
        form, verb = match.groups()
        if verb == "%":
            return "%"
        if verb not in "vsqdtf":
            raise _TemplateError(f"printf does not support %{verb}; supported are %v %s %q %d %t %f")
        value = next(rest, rest)
        if value is rest:
            raise TypeError(f"%{verb} has no argument")
        if verb in "df":
            return f"%{form}{verb}" % value
        return f"%{form}s" % (json.dumps(value, ensure_ascii=False) if verb == "q" else go_text(value))

    return _VERB.sub(fill, template)


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def check(left: Any, *rights: Any) -> bool:
        for right in rights:
            is_nil = compare in (operator.eq, operator.ne) and None in (left, right)
            if (type(left) is not type(right) and not is_nil) or isinstance(left, dict | list):
                raise TypeError("values of these types are not compared")
        return any(compare(left, right) for right in rights)

    return check


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{name: _compared(getattr(operator, name)) for name in ("eq", "ge", "gt", "le", "lt", "ne")},
    "index": _index,
    "len": _len,
    "not": operator.not_,
    "print": _print,
    "printf": _printf,
    "println": lambda *values: " ".join(map(go_text, values)) + "\n",
}
