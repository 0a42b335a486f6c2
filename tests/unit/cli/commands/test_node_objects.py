"""Config maps, secrets and claims of the node on the command line."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.cli.commands.objects import MANIFEST, Run, pod

OBJECTS = """
{apiVersion: v1, kind: ConfigMap, metadata: {name: web, labels: {app: web}}, data: {a: "one\\ntwo"}, binaryData: {b: AAEC}}
---
{apiVersion: v1, kind: Secret, metadata: {name: login}, stringData: {password: hunter2}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""


@pytest.fixture
def applied(agent: Any, kubeletx: Run) -> Any:
    result = kubeletx("apply", "-f", "-", input=f"{MANIFEST}---\n{OBJECTS}")
    assert result.stdout.split("\n")[:-1] == [
        "configmap/web created",
        "secret/login created",
        "persistentvolumeclaim/data created",
        "pod/web created",
    ]
    return agent


def test_objects_are_shown_as_tables(applied: Any, kubeletx: Run) -> None:
    assert kubeletx("get", "cm").stdout.split() == ["NAME", "DATA", "AGE", "web", "2", "10m"]
    assert kubeletx("get", "secrets", "-o", "wide").stdout.split("\n")[1].split() == [
        "login", "Opaque", "1", "10m", "applied",
    ]  # fmt: skip
    assert kubeletx("get", "pvc", "-o", "wide").stdout.split("\n")[1].split() == [
        "data", "Bound", "1Gi", "ReadWriteOnce", "<none>", "10m", "/srv/data", "applied",
    ]  # fmt: skip
    assert kubeletx("get", "cm", "-l", "app=db").stdout == ""
    assert kubeletx("get", "cm,secret", "-o", "name").stdout == "configmap/web\nsecret/login\n"


@pytest.mark.parametrize(
    "words",
    [("get", "secret", "-o", "yaml"), ("get", "secret", "-o", "json"), ("describe", "secret", "login")],
)
def test_no_command_prints_the_value_of_a_secret(applied: Any, kubeletx: Run, words: tuple[str, ...]) -> None:
    shown = kubeletx(*words).stdout
    assert "password" in shown
    assert "<7 bytes>" in shown
    assert "hunter2" not in shown
    assert "aHVudGVyMg" not in shown


def test_apply_does_not_print_a_secret(agent: Any, kubeletx: Run) -> None:
    wrong = OBJECTS.replace("stringData: {password: hunter2}", "data: {password: hunter2!}")
    for result in (kubeletx("apply", "-o", "yaml", "-f", "-", input=text) for text in (OBJECTS, wrong)):
        assert "hunter2" not in result.stdout + result.stderr


def test_a_diff_shows_that_a_value_of_a_secret_changes_but_not_the_value(applied: Any, kubeletx: Run) -> None:
    text = OBJECTS.replace("hunter2", "hunter3").replace("password:", "user: me, password:")
    kubeletx("apply", "-f", "-", input=text.replace("hunter3", "hunter2"))
    result = kubeletx("diff", "-f", "-", input=text.replace("user: me", "host: here"))
    assert result.exit_code == 1
    assert {line for line in result.stdout.split("\n") if "*" in line} == {
        "+  host: '***'",
        "-  user: '***'",
        "-  password: '*** (before)'",
        "+  password: '*** (after)'",
    }
    assert "(after)" not in kubeletx("diff", "-f", "-", input=text.replace("hunter3", "hunter2")).stdout


def test_describe_shows_texts_and_where_a_claim_is(applied: Any, kubeletx: Run) -> None:
    shown = kubeletx("describe", "configmap", "web").stdout
    assert [line.split() for line in shown.split("\n")[-5:-1]] == [
        ["Data:"], ["a:", "one"], ["two"], ["b:", "(binary)"],
    ]  # fmt: skip
    assert ["Path:", "/srv/data"] in [line.split() for line in kubeletx("describe", "pvc").stdout.split("\n")]
    assert "configmap 'none' not found" in kubeletx("describe", "cm", "none").stderr


def test_objects_are_deleted_by_name_label_and_file(applied: Any, kubeletx: Run) -> None:
    assert kubeletx("delete", "secret", "login").stdout == 'secret "login" deleted\n'
    assert 'secret "default/login" not found' in kubeletx("delete", "secret", "login").stderr
    assert kubeletx("delete", "cm", "-l", "app=web").stdout == 'configmap "web" deleted\n'
    assert kubeletx("delete", "pvc", "--all", "-o", "name").stdout == "persistentvolumeclaim/data\n"
    applied.backend.put(pod())
    kubeletx("apply", "-f", "-", input=OBJECTS)
    result = kubeletx("delete", "--no-wait", "-f", "-", input=f"{OBJECTS}---\n{MANIFEST}")
    assert result.stdout.split("\n")[:2] == ['pod "web" deleted', 'configmap "web" deleted']
    assert applied.backend.objects.items == {}
    assert (
        "images cannot be deleted; use 'kubeletx image rm IMAGE'" in kubeletx("delete", "image", "a").stderr
    )


def test_strict_validation_covers_objects(agent: Any, kubeletx: Run) -> None:
    text = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, dta: {}}"
    strict = kubeletx("apply", "--validate=strict", "-f", "-", input=text)
    assert 'ConfigMap in version "v1" cannot be handled as a ConfigMap' in strict.stderr
    assert agent.backend.objects.items == {}
    assert kubeletx("apply", "-f", "-", input=text).stderr == 'Warning: unknown field "dta"\n'
