"""Makes mutants: copies of a module in which one expression or statement is changed. Pure.

Each rule looks at one node of the syntax tree and yields replacements. The text of docstrings, annotations and messages is
never changed, since no test may depend on it.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import NamedTuple

SIGNALS = {"SIGTERM": "SIGCONT", "SIGKILL": "SIGTERM"}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Gt: ast.LtE,
    ast.Lt: ast.GtE,
}


class Mutant(NamedTuple):
    """One changed copy of a module. `what`: short description of the change. `text`: the whole changed source."""

    line: int
    what: str
    text: str


Place = tuple[str, int | None]
"""Position of a node in its parent: the field, and the index if the field is a list."""


def mutants_of(source: str) -> list[Mutant]:
    """Return all mutants of a module, by line. Their text is the formatted tree, so comments are lost."""
    tree = ast.parse(source)
    mutants: dict[str, Mutant] = {}
    for path, node in _walk(tree, ()):
        for what, replacement in _replacements(node):
            changed = copy.deepcopy(tree)
            _replace(changed, path, replacement)
            text = ast.unparse(ast.fix_missing_locations(changed)) + "\n"
            if text != ast.unparse(tree) + "\n" and text not in mutants:
                mutants[text] = Mutant(getattr(node, "lineno", 0), what, text)
    return sorted(mutants.values(), key=lambda mutant: mutant.line)


def _walk(node: ast.AST, path: tuple[Place, ...]) -> Iterator[tuple[tuple[Place, ...], ast.AST]]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_comment", "decorator_list", "bases"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.Import | ast.ImportFrom | ast.Raise):
                continue
            here = (*path, (name, index))
            yield here, child
            yield from _walk(child, here)


def _replace(tree: ast.AST, path: tuple[Place, ...], node: ast.AST) -> None:
    for name, index in path[:-1]:
        child = getattr(tree, name)
        tree = child if index is None else child[index]
    name, index = path[-1]
    if index is None:
        setattr(tree, name, node)
    else:
        getattr(tree, name)[index] = node


def _replacements(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    rule: Callable[..., Iterator[tuple[str, ast.AST]]] | None = RULES.get(type(node))
    if rule is not None:
        yield from rule(node)


def _statement(node: ast.Expr | ast.Assign | ast.AugAssign) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant | ast.Yield | ast.YieldFrom):
        return
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name | ast.Tuple):
        return  # later lines would raise NameError, which shows nothing
    yield "drop statement", ast.Pass()


def _condition(node: ast.If | ast.IfExp) -> Iterator[tuple[str, ast.AST]]:
    for what, test in (
        ("negate condition", ast.UnaryOp(ast.Not(), node.test)),
        ("condition is always true", ast.Constant(True)),
        ("condition is always false", ast.Constant(False)),
    ):
        changed = copy.copy(node)
        changed.test = test
        yield what, changed


def _return(node: ast.Return) -> Iterator[tuple[str, ast.AST]]:
    if node.value is None or (isinstance(node.value, ast.Constant) and node.value.value is None):
        yield "drop return", ast.Pass()
    else:
        yield "return None", ast.Return(None)


def _await(node: ast.Await) -> Iterator[tuple[str, ast.AST]]:
    yield "await removed", node.value


def _compare(node: ast.Compare) -> Iterator[tuple[str, ast.AST]]:
    for index, operator in enumerate(node.ops):
        if type(operator) in COMPARISONS:
            changed = copy.copy(node)
            changed.ops = [*node.ops[:index], COMPARISONS[type(operator)](), *node.ops[index + 1 :]]
            yield "other comparison", changed


def _bool(node: ast.BoolOp) -> Iterator[tuple[str, ast.AST]]:
    changed = copy.copy(node)
    changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield "and/or swapped", changed
    for index in range(len(node.values)):
        rest = [*node.values[:index], *node.values[index + 1 :]]
        yield "operand dropped", rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)


def _constant(node: ast.Constant) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node.value, bool):
        yield "constant negated", ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield "constant changed", ast.Constant(node.value + 1)
    elif isinstance(node.value, str) and node.value in SIGNALS:
        yield "other signal", ast.Constant(SIGNALS[node.value])


def _attribute(node: ast.Attribute) -> Iterator[tuple[str, ast.AST]]:
    if node.attr in SIGNALS:
        yield "other signal", ast.Attribute(node.value, SIGNALS[node.attr], node.ctx)


def _call(node: ast.Call) -> Iterator[tuple[str, ast.AST]]:
    for index, argument in enumerate(node.args):
        if isinstance(argument, ast.Starred):
            changed = copy.copy(node)
            changed.args = [*node.args[:index], *node.args[index + 1 :]]
            yield "arguments dropped", changed


def _sequence(node: ast.Tuple) -> Iterator[tuple[str, ast.AST]]:
    for index, element in enumerate(node.elts):
        if isinstance(element, ast.Starred):
            yield "elements dropped", ast.Tuple([*node.elts[:index], *node.elts[index + 1 :]], node.ctx)


def _comprehension(node: ast.DictComp | ast.ListComp) -> Iterator[tuple[str, ast.AST]]:
    yield "empty instead", ast.Dict([], []) if isinstance(node, ast.DictComp) else ast.List([], ast.Load())


def _dict(node: ast.Dict) -> Iterator[tuple[str, ast.AST]]:
    for index in range(len(node.keys)):
        keys, values = [*node.keys], [*node.values]
        del keys[index], values[index]
        yield "entry dropped", ast.Dict(keys, values)


RULES: dict[type[ast.AST], Callable[..., Iterator[tuple[str, ast.AST]]]] = {
    ast.Expr: _statement,
    ast.Assign: _statement,
    ast.AugAssign: _statement,
    ast.If: _condition,
    ast.IfExp: _condition,
    ast.Return: _return,
    ast.Await: _await,
    ast.Compare: _compare,
    ast.BoolOp: _bool,
    ast.Constant: _constant,
    ast.Attribute: _attribute,
    ast.Call: _call,
    ast.Tuple: _sequence,
    ast.DictComp: _comprehension,
    ast.ListComp: _comprehension,
    ast.Dict: _dict,
}
