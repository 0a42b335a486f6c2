from __future__ import annotations

import contextlib
import re

import pytest
import yaml as pyyaml
from hypothesis import assume, given
from hypothesis import strategies as st

from kubeletx.kube.text.yaml import MAX_ALIASED, YamlError, dump_yaml, parse_documents


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("On", True),
        ("FALSE", False),
        ("y", True),
        ("N", False),
        ("~", None),
        ("", None),
        ("0644", 0o644),
        ("0o644", 0o644),
        ("0x1F", 31),
        ("0b11", 3),
        ("1_000", 1000),
        ("-5", -5),
        ("+5", 5),
        ("08", 8),
        (".5", 0.5),
        ("1e3", 1000),
        ("1.10", 1.1),
        ("12:30", "12:30"),
        ("2024-01-01", "2024-01-01"),
        ("1.2.3.4", "1.2.3.4"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", "9223372036854775808"),
        ("'5'", "5"),
        ("!!str 5", "5"),
        ("!!int '5'", 5),
        ("!!float 5", 5),
        ("! 5", 5),
    ],
)
def test_scalars_are_read_as_kubernetes_reads_them(text: str, value: object) -> None:
    ((found,),) = (document.values() for document in parse_documents(f"a: {text}"))
    assert found == value
    assert type(found) is type(value)


def test_documents_that_are_empty_are_left_out() -> None:
    assert parse_documents("---\na: 1\n---\n# nothing\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


def test_keys_are_always_strings() -> None:
    text = "{1: a, yes: b, 1.5: c, 010: d, 'on': e}"
    assert parse_documents(text) == [{"1": "a", "true": "b", "1.5": "c", "8": "d", "on": "e"}]


def test_merge_keys_fill_in_what_is_missing() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: &more {b: 3, c: 4}\nall:\n  <<: [*base, *more]\n  a: 0\n"
    assert parse_documents(text)[0]["all"] == {"a": 0, "b": 2, "c": 4}


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("a: 1\na: 2", 2, "has the key 'a' twice"),
        ("a: &x [*x]", 1, "uses the alias *x, which no finished value above it defines"),
        ("a: *x", 1, "uses the alias *x, which no finished value above it defines"),
        ("a:\n  b: !ruby/object x", 2, "has the tag '!ruby/object' before 'x'"),
        ("a: !!timestamp 2024-01-01", 1, "has the tag 'tag:yaml.org,2002:timestamp' before '2024-01-01'"),
        ("a: !!int x", 1, "has the tag 'tag:yaml.org,2002:int' before 'x'"),
        ("? [a]\n: b", 1, "has a key that is not a string"),
        ("a: {<<: 5}", 1, "merges (<<) something that is not a mapping"),
        ("a: " + "[" * 500, 1, "is nested deeper than 100 levels"),
        ("a: 'x", 1, "is not YAML: found unexpected end of stream"),
        ("a: \x01", 0, "is not YAML: control characters are not allowed"),
    ],
)
def test_what_is_not_acceptable_is_refused_with_its_line(text: str, line: int, problem: str) -> None:
    with pytest.raises(YamlError) as caught:
        parse_documents(text)
    assert (caught.value.line, caught.value.problem) == (line, problem)


def test_aliases_may_not_multiply() -> None:
    text = "a: &a [" + ", ".join("x" for _ in range(100)) + "]\n"
    assert parse_documents(text + "b: [" + ", ".join(["*a"] * 10) + "]")
    with pytest.raises(YamlError, match=f"repeats more than {MAX_ALIASED} values"):
        parse_documents(text + "b: [" + ", ".join(["*a"] * 100) + "]")


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Co", "Cn")), max_size=20),
    lambda children: st.lists(children, max_size=4)
    | st.dictionaries(st.text("abcdef-_./", min_size=1, max_size=8), children, max_size=4),
    max_leaves=15,
)  # fmt: skip


@given(st.dictionaries(st.text("abcxyz", min_size=1, max_size=8), plain, max_size=5))
def test_what_is_dumped_is_read_back(value: dict[str, object]) -> None:
    documents = parse_documents(dump_yaml(value))
    assert documents == [value]


@pytest.mark.parametrize(
    "text", ["1e3", "0o17", "y", "N", "on", "08", "1_0", "+.5", "null", "~", "1.10", "2024-01-01", ""]
)
def test_strings_that_look_like_something_else_are_quoted(text: str) -> None:
    assert f"'{text}'" in dump_yaml({"a": text})
    assert parse_documents(dump_yaml({"a": text})) == [{"a": text}]


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(YamlError):
        assert isinstance(parse_documents(text), list)


_BETWEEN_VERSIONS = re.compile(r"(?<![\w.'\"])(?:[-+]?\d+[eE][-+]?\d+|[yYnN])(?![\w'\"])")
"""A number or boolean to Kubernetes, plain text to another writer of YAML, which leaves it unquoted."""


@given(st.dictionaries(st.text("abcxyz", min_size=1), plain, min_size=1, max_size=5))
def test_other_writers_are_understood(value: dict[str, object]) -> None:
    text = pyyaml.safe_dump(value, default_flow_style=True, allow_unicode=False)
    assume(not _BETWEEN_VERSIONS.search(text))
    assert parse_documents(text) == [value]
