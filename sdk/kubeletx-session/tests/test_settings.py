"""What the node gives an instance, and what is said if something of it is missing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from kubeletx_session import AsyncSessionClient, Endpoint, Settings, SettingsError


def test_settings_come_from_the_environment(tmp_path: Path) -> None:
    settings = Settings.from_environment(
        {
            "KUBELETX_SESSION_DIRECTORY": str(tmp_path),
            "KUBELETX_SESSION_SERVICE": "unix:///run/s.sock",
            "KUBELETX_POD_ID": "default/web",
        },
        heartbeat_seconds=3.0,
    )
    assert (settings.directory, settings.service, settings.pod_id) == (
        tmp_path,
        "unix:///run/s.sock",
        "default/web",
    )
    assert (settings.heartbeat_seconds, settings.shutdown_seconds) == (3.0, 20.0)


def test_a_pod_without_sessions_is_told_which_annotation_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBELETX_SESSION_DIRECTORY", raising=False)
    with pytest.raises(
        SettingsError, match=r'KUBELETX_SESSION_DIRECTORY is not set; .*kubeletx\.io/sessions: "true"'
    ):
        AsyncSessionClient(lambda session: None)  # type: ignore[arg-type, return-value]  # never called


def test_metadata_has_the_data_of_the_application(tmp_path: Path) -> None:
    content = {
        "podId": "default/web",
        "podUid": "u1",
        "service": "10.0.0.1:1022",
        "node": "n1",
        "endpoints": [{"name": "http", "protocol": "TCP", "address": "10.1.0.4", "port": 80}],
        "application": {"name": "shop", "data": "blue"},
        "sessions": [{"id": "default/s"}],
    }
    (tmp_path / "metadata.json").write_text(json.dumps(content))
    metadata = Settings(directory=tmp_path).metadata()
    assert (metadata.pod_id, metadata.pod_uid, metadata.service, metadata.node) == (
        "default/web",
        "u1",
        "10.0.0.1:1022",
        "n1",
    )
    assert metadata.endpoints == (Endpoint(name="http", protocol="TCP", address="10.1.0.4", port=80),)
    assert (metadata.application, metadata.application_data) == ("shop", "blue")
    assert metadata.raw["sessions"] == [{"id": "default/s"}]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"podId": "a/b", "endpoints": [{"port": 80}]}'])
def test_unusable_metadata_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "metadata.json").write_text(text)
    with pytest.raises(SettingsError, match=r"metadata\.json is not the metadata of an instance"):
        Settings(directory=tmp_path).metadata()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read .*metadata\.json: No such file"):
        Settings(directory=tmp_path).metadata()
