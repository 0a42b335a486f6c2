"""The reference of kubeletx.api can be built, and each of its names is described."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import FunctionType

from kubeletx import api
from script.api_reference.page import page

CLASSES = {
    node.name: node
    for path in Path(inspect.getfile(api)).parent.glob("*.py")
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.ClassDef)
}


def test_every_protocol_and_every_value_has_a_section() -> None:
    names = [one.__name__ for one in api.CAPABILITIES] + [
        "Runtime",
        "Session",
        "RegisterRuntime",
        "UnitStats",
    ]
    text = page()
    assert [name for name in names if f"\n### {name}\n" not in text] == []


def test_every_public_class_and_function_has_a_docstring() -> None:
    without = [
        name
        for name in api.__all__
        if (isinstance(getattr(api, name), FunctionType) and not getattr(api, name).__doc__)
        or (name in CLASSES and not ast.get_docstring(CLASSES[name]))
    ]
    assert without == []
