"""``kubeletx config view``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kubeletx.server.views import ConfigValue
from tests.unit.cli.commands.objects import CONFIG_HEAD, Run


def test_the_configuration_of_the_agent_is_shown_with_its_origins(agent: Any, kubeletx: Run) -> None:
    agent.backend.config_values = (
        ConfigValue(key="maxPods", value=5, origin="flag --max-pods", flag="max-pods"),
        ConfigValue(key="logging.format", value="json", origin="/etc/x.yaml"),
        ConfigValue(key="syncFrequency", value="1m", origin="default"),
    )
    assert kubeletx("config", "view").stdout.splitlines() == [
        "SETTING          VALUE   FROM",
        "maxPods          5       flag --max-pods",
        "logging.format   json    /etc/x.yaml",
        "syncFrequency    1m      default",
    ]
    document = yaml.safe_load(kubeletx("config", "view", "--changed", "-o", "yaml").stdout)
    assert document["logging"] == {"format": "json"}
    assert "syncFrequency" not in document


def test_with_agent_flags_no_agent_is_asked_for_the_configuration(kubeletx: Run, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(CONFIG_HEAD + "maxPods: 7\n")
    result = kubeletx("--config", str(file), "config", "view", "--changed")
    assert [line.split() for line in result.stdout.splitlines()[1:]] == [
        ["--root-dir", str(tmp_path), "flag", "--root-dir"],
        ["maxPods", "7", str(file)],
    ]
    file.write_text(CONFIG_HEAD + "maxPods: x\nsyncFrequency: y\n")
    bad = kubeletx("--config", str(file), "config", "view")
    assert bad.exit_code == 2
    assert len(bad.stderr.splitlines()) == 2
    wrong = kubeletx(
        "--container-runtime-endpoint", "container:a:unix:///a;pod:b:unix:///b", "config", "view"
    )
    assert wrong.exit_code == 2
    assert "item 2: unknown workload type 'pod'" in wrong.stderr
    file.write_text(CONFIG_HEAD + 'kubeletx: {containerRuntimeEndpoints: ["container:a:/a", "pod:b:/b"]}\n')
    of_file = kubeletx("--config", str(file), "config", "view")
    assert of_file.stderr.startswith(
        f"Error: {file}: kubeletx.containerRuntimeEndpoints[1]: unknown workload type 'pod'"
    )
    file.write_text(CONFIG_HEAD + "containerRuntimeEndpoint: ftp:///a\n")
    assert (
        f"Error: {file}: containerRuntimeEndpoint: "
        in kubeletx("--config", str(file), "config", "view").stderr
    )


def test_what_config_view_prints_can_be_read_again(kubeletx: Run, tmp_path: Path) -> None:
    document = kubeletx(
        "--max-pods", "3", "--cni-conf-dir", "/etc/cni", "config", "view", "-o", "yaml"
    ).stdout
    file = tmp_path / "again.yaml"
    file.write_text(document)
    again = kubeletx("--config", str(file), "config", "view", "-o", "yaml")
    assert again.stdout == document
