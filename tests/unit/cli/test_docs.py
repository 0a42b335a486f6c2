"""The operator guide names only commands, flags, fields and exit codes that exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import yaml

from kubeletx.agent.config.load import load_config
from kubeletx.agent.config.tree import BY_FLAG, BY_KEY
from kubeletx.cli.main import cli
from kubeletx.cli.options.exit_codes import ExitCode

GUIDE = (Path(__file__).parents[3] / "docs" / "operator-guide.md").read_text()


def test_every_command_of_the_guide_exists() -> None:
    context = click.Context(cli)
    said = re.findall(r"`kubeletx ([^`]*)`", GUIDE) + re.findall(r"^\$ kubeletx (.*)$", GUIDE, re.MULTILINE)
    for line in (re.sub(r"^(?:--\S+ [A-Z]+ )+", "", text) for text in said):
        words = re.findall(r"[a-z][a-z-]*", f" {line}".partition(" -")[0])
        command: click.Command | None = cli
        while words and isinstance(command, click.Group):
            command = command.get_command(context, words.pop(0))
        assert command is not None, line


def test_every_flag_of_the_guide_exists() -> None:
    commands = {
        "all",
        "drain",
        "undo",
        "timeout",
        "force",
        "runtime",
        "follow",
        "output-watch-events",
        "raw",
        "dry-run",
        "validate",
        "history",
        "help",
    }
    known = {"root-dir", "config", "config-dir", "unix-socket"} | commands | set(BY_FLAG)
    ours = re.sub(r"`(?:kubectl|py-spy) [^`]*`", "", GUIDE)
    assert set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", ours)) <= known


def test_every_field_of_the_guide_exists() -> None:
    for key in re.findall(r"`(kubeletx\.(?!io|db|sock)[A-Za-z.]+)`", GUIDE):
        assert key.removesuffix(".KIND") in BY_KEY


def test_the_sample_configuration_is_valid(tmp_path: Path) -> None:
    (text,) = [
        block
        for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)
        if "KubeletConfiguration" in block
    ]
    file = tmp_path / "config.yaml"
    file.write_text(text)
    config = load_config(config_file=file)
    assert len(config.runtimes.endpoints) == 2
    assert not config.unused


def test_the_sample_drop_in_is_valid() -> None:
    from kubeletx.runtimes.endpoints.drop_ins import DropIn

    (text,) = [
        block for block in re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL) if "workloadType" in block
    ]
    assert DropIn.__struct_fields__
    assert set(yaml.safe_load(text)) <= set(DropIn.__struct_encode_fields__)


@pytest.mark.parametrize("code", [int(code) for code in re.findall(r"[Ee]xit code (\d+)", GUIDE)])
def test_every_exit_code_of_the_guide_exists(code: int) -> None:
    assert code in list(ExitCode)
