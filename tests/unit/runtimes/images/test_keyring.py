"""Which credentials fit an image."""

from __future__ import annotations

from kubeletx.runtimes.images.keyring import RegistryEntry, helper_server, key_of, matching, registry_of


def servers(image: str, *keys: str) -> list[str]:
    return [
        entry.server for entry in matching([RegistryEntry(server=key, username="u") for key in keys], image)
    ]


def test_the_longest_matching_path_comes_first() -> None:
    keys = ("https://r.io", "r.io/team", "r.io/team/app", "other.io")
    assert servers("r.io/team/app:1", *keys) == ["r.io/team/app", "r.io/team", "https://r.io"]
    assert servers("r.io/x", *keys) == ["https://r.io"]


def test_globs_match_one_label_each_and_ports_must_be_equal() -> None:
    assert servers("a.r.io/x", "*.r.io", "r.io", "*.*.io", "*.io") == ["*.r.io", "*.*.io"]
    assert servers("r.io:5000/x", "r.io", "r.io:5000", "*.io:5000") == ["r.io:5000", "*.io:5000"]
    assert servers("abc1.r.io/x", "abc?.r.io", "abc[0-3].r.io") == ["abc[0-3].r.io", "abc?.r.io"]


def test_the_default_registry_has_its_old_key() -> None:
    key = "https://index.docker.io/v1/"
    assert key_of(key) == "index.docker.io"
    assert servers("busybox", key) == [key]
    assert servers("user/app", key, "r.io") == [key]
    assert servers("r.io/app", key) == []


def test_images_of_machines_find_the_credentials_of_their_server() -> None:
    keys = ("https://r.io", "r.io:8443", "other.io")
    assert servers("oci:r.io/disk:1", *keys) == ["https://r.io"]
    assert servers("https://r.io:8443/Disks/a.qcow2?x=1", *keys) == ["r.io:8443"]
    assert servers("r.io/Disks/a.qcow2", *keys) == ["https://r.io"]
    assert servers("/srv/a.qcow2", *keys) == []
    assert registry_of("https://r.io/a.img") == "r.io"


def test_helpers_are_found_like_entries() -> None:
    helpers = {"r.io": "one", "*.r.io": "two"}
    assert helper_server(helpers, "r.io/x") == "r.io"
    assert helper_server(helpers, "a.r.io/x") == "*.r.io"
    assert helper_server(helpers, "other.io/x") == ""
    assert registry_of("busybox") == "https://index.docker.io/v1/"
    assert registry_of("r.io:5000/x") == "r.io:5000"


def test_secrets_are_not_shown() -> None:
    entry = RegistryEntry(server="r.io", username="u", password="hunter2", identity_token="tok")
    assert "hunter2" not in repr(entry)
    assert "tok" not in repr(entry)
