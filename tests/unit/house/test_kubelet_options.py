"""Every flag and every field of kubelet v1.36 has one row, a flag and its field the same one.

kubelet-1.36-options.txt beside this file lists them: the flag, then the field of KubeletConfiguration; ``-``: the
kubelet has only the other. Source: kubelet v1.36.2, cmd/kubelet/app/options and config/v1beta1/types.go.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from kubeletx.agent.config.kubelet_legacy import LEGACY_OPTIONS
from kubeletx.agent.config.kubelet_options import KUBELET_OPTIONS
from kubeletx.agent.config.tree import ENDPOINT_KEYS, SETTINGS
from kubeletx.cli.commands.node.agent import agent
from kubeletx.cli.main import cli

LIST = [
    tuple("" if word == "-" else word for word in line.split())
    for line in (Path(__file__).parent / "kubelet-1.36-options.txt").read_text().splitlines()
]
OF_THE_COMMAND = {"config", "config-dir", "root-dir", "version", "help"}
FLAGS_THAT_FIELDS_HAD = {"iptables-drop-bit", "iptables-masquerade-bit"}
"""Flags of older kubelets whose fields v1.36 still has."""
ROWS = [
    *((one.flag, ENDPOINT_KEYS[one.path][1] if one.path in ENDPOINT_KEYS else one.key) for one in SETTINGS),
    *((one.flag, one.field) for one in (*KUBELET_OPTIONS, *LEGACY_OPTIONS)),
]
FLAG_OF = {field: flag for flag, field in ROWS if field}


def test_the_list_is_a_kubelets() -> None:
    assert len([flag for flag, _ in LIST if flag]) == 150
    assert len([field for _, field in LIST if field]) == 138


def test_each_flag_and_field_of_a_kubelet_has_one_row() -> None:
    flags = {row[0] for row in ROWS}
    assert [field for _, field in LIST if field and field not in FLAG_OF] == []
    assert [(flag, field) for flag, field in LIST if flag and field and FLAG_OF[field] != flag] == []
    assert [flag for flag, field in LIST if not field and flag not in OF_THE_COMMAND | flags] == []


def test_no_flag_or_field_has_two_rows() -> None:
    flags = Counter(flag for flag, _ in ROWS if flag)
    fields = Counter(field for _, field in ROWS if field)
    assert [name for name, count in (*flags.items(), *fields.items()) if count > 1] == []


def test_what_is_not_carried_out_is_a_kubelets_and_no_other() -> None:
    known = set(LIST)
    for option in KUBELET_OPTIONS:
        flag = "" if option.flag in FLAGS_THAT_FIELDS_HAD else option.flag
        assert (flag, option.field) in known


def test_flags_of_older_kubelets_are_not_flags_of_this_one() -> None:
    assert not {option.flag for option in LEGACY_OPTIONS} & {flag for flag, _ in LIST}
    assert not any(option.field for option in LEGACY_OPTIONS)


def test_the_command_takes_every_flag_of_a_kubelet() -> None:
    taken = {name.lstrip("-") for option in (*cli.params, *agent.params) for name in option.opts} | {"help"}
    assert {flag for flag, _ in LIST if flag} - taken == set()


def test_each_row_says_in_words_what_follows() -> None:
    for option in (*KUBELET_OPTIONS, *LEGACY_OPTIONS):
        assert len(option.words) > 10
        assert " yet" not in option.words
        assert bool(option.accepted) == bool(option.fix)
