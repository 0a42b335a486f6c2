"""Settings of the kubelet that kubeletx does not carry out: what is said of each, as a flag and as a field.

Together with `config_settings.SETTINGS`, which holds what is carried out, this is every flag and every field of
KubeletConfiguration of kubelet v1.36; a house test compares both with the kubelet's own list. A flag and its field
are one row, so that both are treated alike:

- a value that asks for nothing kubeletx lacks (the kubelet's default, say) is accepted in silence;
- any other value is accepted with one warning at start that names the consequence,
- or refused, where a pod would be promised something that it does not get.

Source: kubelet v1.36, config/v1beta1/types.go and cmd/kubelet/app/options.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from .config_kinds import Kind


class KubeletOption(msgspec.Struct, frozen=True, kw_only=True):
    """One row. `field` or `flag` is empty where the kubelet has only the other.

    `silent`: values that ask for nothing. Empty texts, lists and maps never do.
    """

    field: str = ""
    flag: str = ""
    kind: Kind
    silent: tuple[object, ...] = ()
    words: str
    """The consequence; of a refused option what to do instead."""
    refused: bool = False

    def is_silent(self, value: Any) -> bool:
        """Whether this value asks for nothing that kubeletx lacks."""
        if value is None or (isinstance(value, str | list | dict | tuple) and not value):
            return True
        return any(type(value) is type(one) and value == one for one in self.silent)


REMOVED_FLAGS: Final[dict[str, str]] = {
    "cloud-config": "clouds have been left to their own controllers since v1.31; use --cloud-provider=external",
    "container-runtime": "only remote runtimes are left since v1.24; --container-runtime-endpoint says which",
    "keep-terminated-pod-volumes": "volumes of ended pods are always released",
    "network-plugin": "the container runtime sets up the network since v1.24",
    "non-masquerade-cidr": "the container runtime sets up the network since v1.24",
    "really-crash-for-testing": "it was for tests of the kubelet",
    "config-file": "write --config",
    "dynamic-config-dir": "configuration from the API server has gone with v1.24; write --config",
    "experimental-bootstrap-kubeconfig": "write --bootstrap-kubeconfig",
    "image-pull-progress-deadline": "the container runtime decides when a pull has failed",
    "network-plugin-mtu": "the container runtime sets up the network since v1.24",
    **dict.fromkeys(
        (
            "add-dir-header",
            "alsologtostderr",
            "log-backtrace-at",
            "log-dir",
            "log-file",
            "log-file-max-size",
            "logtostderr",
            "one-output",
            "skip-headers",
            "skip-log-headers",
            "stderrthreshold",
        ),
        "it has gone with v1.26; the log goes to standard error",
    ),
    "iptables-drop-bit": "kubeletx makes no iptables rules",
    "iptables-masquerade-bit": "kubeletx makes no iptables rules",
}
"""Flags of older kubelets, without dashes, and why they are gone."""
