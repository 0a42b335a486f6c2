from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.kube.text.expansion import UnknownName, expand, expand_strictly

NAMES = st.text(alphabet="ABC_1.-", min_size=1, max_size=4)
VALUES = st.dictionaries(NAMES, st.text(max_size=6))
TEXTS = st.lists(st.sampled_from(["$", "(", ")", "A", "B", "$$", "$(A)", "$(B)", "x", "\n"])).map("".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(A)$(B)", "12"),
        ("$(NONE)", "$(NONE)"),
        ("$(A", "$(A"),
        ("$A", "$A"),
        ("a$", "a$"),
        ("$$", "$"),
        ("$()", "$()"),
        ("$($(A))", "$($(A))"),
        ("$(A)-$(B)-$(A)", "1-2-1"),
        ("", ""),
    ],
)
def test_references_are_replaced_as_kubernetes_does(text, expected):
    assert expand(text, {"A": "1", "B": "2"}) == expected


def reference_expand(text: str, values: dict[str, str]) -> str:
    """The rule, character by character, as the API documents it."""
    out, at = "", 0
    while at < len(text):
        if text[at] == "$" and at + 1 < len(text):
            if text[at + 1] == "$":
                out, at = out + "$", at + 2
                continue
            end = text.find(")", at + 2) if text[at + 1] == "(" else -1
            if end >= 0:
                name = text[at + 2 : end]
                out, at = out + values.get(name, f"$({name})"), end + 1
                continue
        out, at = out + text[at], at + 1
    return out


@given(TEXTS, VALUES)
def test_every_text_follows_the_rule(text, values):
    assert expand(text, values) == reference_expand(text, values)


@given(st.text(), VALUES)
def test_a_text_without_dollar_signs_is_left_alone(text, values):
    plain = text.replace("$", "")
    assert expand(plain, values) == plain


@given(st.text(), VALUES)
def test_doubling_every_dollar_sign_protects_any_text(text, values):
    assert expand(text.replace("$", "$$"), values) == text


@given(TEXTS, VALUES)
def test_strict_expansion_agrees_wherever_every_name_is_known(text, values):
    names = [match[1] for match in re.finditer(r"\$(?:\$|\(([^)]*)\))", text) if match[1] is not None]
    unknown = [name for name in names if name not in values]
    if unknown:
        with pytest.raises(UnknownName) as caught:
            expand_strictly(text, values)
        assert caught.value.name == unknown[0]
    else:
        assert expand_strictly(text, values) == expand(text, values)
