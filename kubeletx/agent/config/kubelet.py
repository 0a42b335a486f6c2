"""Settings of the kubelet that have no effect in kubeletx: one row per flag and its field.

`settings.SETTINGS` holds those with an effect. With `kubelet_options` it covers every flag and every
field of KubeletConfiguration of kubelet v1.36; a house test compares both with the kubelet's own list.
`kubelet_legacy` covers flags that kubelets since v1.15 had and v1.36 no longer has. A flag and its field are one
row, so that both are treated alike:

- a value that asks for nothing kubeletx lacks (the kubelet's default, say) is accepted without a warning; any other
value is accepted with one warning at start that names the consequence, or refused where a pod would be promised
something that it does not get.

Source: kubelet v1.36, config/v1beta1/types.go and cmd/kubelet/app/options.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .kinds import SettingKind


class KubeletOption(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the kubelet without effect in kubeletx. `field` or `flag` is empty if the kubelet has only the
    other.

    `silent`: values accepted without a warning; empty texts, lists and maps are always accepted so. `accepted`:
    values of a refused option that are accepted with the warning.
    """

    field: str = ""
    flag: str = ""
    kind: SettingKind
    silent: tuple[object, ...] = ()
    words: str
    """The consequence; for a refused option, what to do instead."""
    refused: bool = False
    accepted: tuple[str, ...] = ()
    fix: str = ""
    """Advice for a refused value; empty if `words` has it."""

    def is_silent(self, value: Any) -> bool:
        """Return True if the value needs no missing feature, so that it causes no warning."""
        if value is None or (isinstance(value, str | list | dict | tuple) and not value):
            return True
        return any(type(value) is type(one) and value == one for one in self.silent)

    def is_refused(self, value: Any) -> bool:
        """Return True if the agent refuses to start with this value."""
        return self.refused and not self.is_silent(value) and value not in self.accepted
