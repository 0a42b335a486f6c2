"""Objects in which a server in Go wrote null for an empty list or map."""

from __future__ import annotations

import msgspec
import pytest

from kubeletx.kube.text.objects import decode_object
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.custom import CustomObject, CustomResourceDefinition


def test_null_counts_as_absent() -> None:
    text = b'{"metadata": {"name": "a"}, "status": {"conditions": null, "acceptedNames": {"kind": ""}}}'
    found = decode_object(text, msgspec.json.Decoder(CustomResourceDefinition))
    assert found.metadata.name == "a"
    assert found.status.conditions == ()


def test_nulls_within_lists_of_objects_count_as_absent() -> None:
    text = b'{"spec": {"containers": [{"name": "a", "env": null, "resources": null}]}}'
    found = decode_object(text, msgspec.json.Decoder(Pod))
    assert [one.name for one in found.spec.containers] == ["a"]
    assert found.spec.containers[0].env == ()


def test_values_of_a_free_form_keep_their_nulls() -> None:
    found = decode_object(b'{"spec": {"a": null}}', msgspec.json.Decoder(CustomObject))
    assert found.spec == {"a": None}


def test_another_error_is_the_first_one() -> None:
    text = b'{"spec": {"containers": [{"name": 1, "env": null}]}}'
    with pytest.raises(
        msgspec.ValidationError, match=r"`str`, got `int` - at `\$\.spec\.containers\[0\]\.name`"
    ):
        decode_object(text, msgspec.json.Decoder(Pod))


def test_text_that_is_not_json_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_object(b"{", msgspec.json.Decoder(Pod))
