"""What holds secrets never prints them, wherever its repr may end up."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx.api import CloudInit, EnvVar, ImageAuth, ImageSpec, ObjectData, Process, UnitSpec
from kubeletx.kube.types.core import Container, Pod, PodSpec
from kubeletx.kube.types.core import EnvVar as PodVariable
from kubeletx.runtimes.images.credentials import HelperAnswer, entries_of, parse_config
from kubeletx.runtimes.images.provider_config import EnvironmentVariable
from kubeletx.runtimes.images.provider_program import Login, Question
from kubeletx.testing import volume_request
from kubeletx.volumes.files.atomic_writer import FileContent

SECRET = "hunter2"
CONFIG = b'{"auths": {"registry.example": {"username": "u", "password": "hunter2", "auth": ""}}}'

HOLDERS = [
    EnvVar(name="PASSWORD", value=SECRET),
    UnitSpec(
        name="c",
        image=ImageSpec(requested="i"),
        detail=Process(),
        environment=(EnvVar(name="P", value=SECRET),),
    ),
    CloudInit(user_data=SECRET.encode(), script=SECRET),
    ImageAuth(username="u", password=SECRET, auth=SECRET, identity_token=SECRET, registry_token=SECRET),
    Pod(spec=PodSpec(containers=(Container(name="c", env=(PodVariable(name="P", value=SECRET),)),))),
    parse_config(CONFIG, is_old=False),
    entries_of(parse_config(CONFIG, is_old=False)),
    HelperAnswer(username="u", secret=SECRET),
    Login(username="u", password=SECRET),
    Question(image="i", token=SECRET, annotations=(("a", SECRET),)),
    EnvironmentVariable(name="PASSWORD", value=SECRET),
    ObjectData(text={"password": SECRET}, binary={"key": SECRET.encode()}),
    FileContent(data=SECRET.encode()),
    volume_request(Path("/root"), secrets={"password": SECRET.encode()}),
]


@pytest.mark.parametrize("holder", HOLDERS, ids=lambda holder: type(holder).__name__)
def test_a_holder_of_secrets_does_not_print_them(holder: object) -> None:
    assert SECRET not in repr(holder)
    assert SECRET not in str(holder)
