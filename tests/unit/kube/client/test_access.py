"""Reading kubeconfigs: who we are, where the API server is, and what is wrong with the file."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from kubeletx.api import InvalidConfig
from kubeletx.kube.client import load_kubeconfig

GOOD = """
apiVersion: v1
kind: Config
clusters:
- {name: c, cluster: {server: "https://10.0.0.1:6443/", certificate-authority: ca.crt}}
- {name: d, cluster: {server: "https://10.0.0.2"}}
users:
- {name: node, user: {client-certificate: pki/node.crt, client-key: pki/node.key}}
- {name: pod, user: {tokenFile: /run/token, token: old}}
contexts:
- {name: one, context: {cluster: c, user: node, namespace: kube-system}}
- {name: two, context: {cluster: d, user: pod}}
current-context: one
"""


def write(directory: Path, text: str) -> Path:
    path = directory / "kubeconfig"
    path.write_text(text)
    return path


def test_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    access = load_kubeconfig(write(tmp_path, GOOD))
    assert access.server == "https://10.0.0.1:6443"
    assert (access.ca, access.certificate) == (tmp_path / "ca.crt", tmp_path / "pki/node.crt")
    assert access.namespace == "kube-system"


def test_a_token_file_wins_over_a_token(tmp_path: Path) -> None:
    access = load_kubeconfig(write(tmp_path, GOOD.replace("current-context: one", "current-context: two")))
    assert (access.token, access.token_file, access.ca) == ("", Path("/run/token"), None)


def test_data_win_over_files_and_are_never_shown(tmp_path: Path) -> None:
    data = base64.b64encode(b"PEM").decode()
    text = GOOD.replace("client-key: pki/node.key", f"client-key: pki/node.key, client-key-data: {data}")
    access = load_kubeconfig(write(tmp_path, text))
    assert access.key == b"PEM"
    assert "PEM" not in repr(access)


def test_one_cluster_and_one_user_need_no_context(tmp_path: Path) -> None:
    text = """
clusters: [{name: c, cluster: {server: "http://127.0.0.1:8080", proxy-url: "http://p:3128"}}]
users: [{name: u, user: {token: secret}}]
"""
    access = load_kubeconfig(write(tmp_path, text))
    assert (access.server, access.token, access.proxy_url) == (
        "http://127.0.0.1:8080",
        "secret",
        "http://p:3128",
    )


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("current-context: one", "current-context: three", "has no context 'three'; there are: one, two"),
        ("current-context: one", "", "current-context: is not set"),
        ('server: "https://10.0.0.1:6443/"', "server: 10.0.0.1", "cluster.server: '10.0.0.1' is not an address"),
        ("client-key: pki/node.key", "x: y", "a certificate without its key"),
        ("client-key: pki/node.key", "client-key-data: '%%'", "client-key-data: is not base64"),
        ("client-certificate: pki/node.crt", "username: me, client-certificate: a", "user.username: is not supported"),
        ("clusters:", "clusters: 3\nx:", "clusters: is not a list of mappings"),
        ("kind: Config", "kind: [", "line"),
        ('"https://10.0.0.1:6443/"', '"https://[::1"', "cluster.server: 'https://[::1' is not an address"),
        ('"https://10.0.0.1:6443/"', '"https://a:port"', "cluster.server: 'https://a:port' is not an address"),
        ("certificate-authority: ca", 'proxy-url: "socks5://p:1", x: ca', "cluster.proxy-url: 'socks5://p:1' is not"),
        ("certificate-authority: ca", 'insecure-skip-tls-verify: "false", x: ca', "'false' is neither true nor false"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_the_file(tmp_path: Path, before: str, after: str, words: str) -> None:
    path = write(tmp_path, GOOD.replace(before, after, 1))
    with pytest.raises(InvalidConfig) as caught:
        load_kubeconfig(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ('token: "a\\nb"', "user.token: is not one line of text"),
        ("exec: {args: [a]}", "user.exec.command: is missing"),
        ("exec: {command: 5}", "user.exec.command: is not a text"),
        ("exec: {command: p, args: -v}", "user.exec.args: is not a list of texts"),
        ("exec: {command: p, args: [1]}", "user.exec.args: is not a list of texts"),
        ("exec: {command: p, env: {A: b}}", "user.exec.env: is not a list of name and value"),
        ("exec: {command: p, env: [{value: b}]}", "user.exec.env: is not a list of name and value"),
        ("exec: {command: p, provideClusterInfo: 'true'}", "user.exec.provideClusterInfo: 'true' is neither"),
        ("exec: {command: p, interactiveMode: Always}", "user.exec.interactiveMode: 'Always' is not supported"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_user_is_named(tmp_path: Path, user: str, words: str) -> None:
    text = GOOD.replace("{tokenFile: /run/token, token: old}", f"{{{user}}}")
    with pytest.raises(InvalidConfig) as caught:
        load_kubeconfig(write(tmp_path, text.replace("current-context: one", "current-context: two")))
    assert words in str(caught.value)


def test_a_program_may_be_told_of_the_cluster_with_what_is_for_it_alone(tmp_path: Path) -> None:
    exec_ = "{exec: {command: p, provideClusterInfo: true}}"
    extension = "{name: client.authentication.k8s.io/exec, extension: {audience: a}}"
    text = GOOD.replace("{tokenFile: /run/token, token: old}", exec_)
    text = text.replace(
        '"https://10.0.0.2"', f'"https://10.0.0.2", extensions: [{{name: other}}, {extension}]'
    )
    access = load_kubeconfig(write(tmp_path, text.replace("current-context: one", "current-context: two")))
    assert access.exec is not None
    assert (access.exec.is_told_cluster, access.exec.cluster_config) == (True, {"audience": "a"})


def test_the_end_of_a_tokens_line_is_not_part_of_it(tmp_path: Path) -> None:
    text = GOOD.replace("{tokenFile: /run/token, token: old}", '{token: "abc\\n"}')
    access = load_kubeconfig(write(tmp_path, text.replace("current-context: one", "current-context: two")))
    assert access.token == "abc"


@pytest.mark.parametrize(
    ("command", "found"), [("aws", "aws"), ("./login", "{}/login"), ("/bin/login", "/bin/login")]
)
def test_a_program_with_a_path_is_beside_the_file(tmp_path: Path, command: str, found: str) -> None:
    text = GOOD.replace("{tokenFile: /run/token, token: old}", f"{{exec: {{command: {command}}}}}")
    access = load_kubeconfig(write(tmp_path, text.replace("current-context: one", "current-context: two")))
    assert access.exec is not None
    assert access.exec.command == found.format(tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="absent: cannot be read: No such file"):
        load_kubeconfig(tmp_path / "absent")


def test_a_program_for_credentials_is_read_with_its_environment(tmp_path: Path) -> None:
    text = GOOD.replace(
        "{tokenFile: /run/token, token: old}",
        "{exec: {command: aws, args: [eks, get-token], env: [{name: A, value: b}], apiVersion: v9}}",
    ).replace("current-context: one", "current-context: two")
    program = load_kubeconfig(write(tmp_path, text)).exec
    assert program is not None
    assert (program.command, program.args, program.env, program.api_version) == (
        "aws",
        ("eks", "get-token"),
        (("A", "b"),),
        "v9",
    )
