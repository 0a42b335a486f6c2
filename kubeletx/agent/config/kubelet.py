"""`KubeletOption`: a setting of the kubelet that has no effect in kubeletx.

- `tree.SETTINGS` has the kubelet's settings that have an effect.
- `kubelet_options` has the others. The two tables cover every flag and every KubeletConfiguration field of
  kubelet v1.36; a test compares them with the kubelet's own list.
- `kubelet_legacy` has flags of kubelets since v1.15 that v1.36 no longer has.

A flag and the field of the same setting are one `KubeletOption`. A value that needs no missing feature, such as the
kubelet's default, is accepted without a warning. Any other value is accepted with one warning at start that names
the consequence. It is refused instead if pods would be promised something that they do not get.

Source: kubelet v1.36, config/v1beta1/types.go and cmd/kubelet/app/options.
"""

from __future__ import annotations

from typing import Any

import msgspec

from .kinds import SettingKind


class KubeletOption(msgspec.Struct, frozen=True, kw_only=True):
    """A setting of the kubelet that has no effect in kubeletx.

    `field`: field of KubeletConfiguration, empty if there is only the flag. `flag`: empty if there is only the field.
    `silent`: values accepted without a warning; empty texts, lists and maps are always accepted without one.
    `refused`: the agent does not start with any other value. `accepted`: values of a refused option that are
    accepted with a warning.
    """

    field: str = ""
    flag: str = ""
    kind: SettingKind
    silent: tuple[object, ...] = ()
    words: str
    """What happens without the setting, for the warning; for a refused option, what to do instead."""
    refused: bool = False
    accepted: tuple[str, ...] = ()
    fix: str = ""
    """What to do about a refused value; empty: `words` says it."""

    def is_silent(self, value: Any) -> bool:
        """Return True if the value is accepted without a warning, since it needs no missing feature."""
        if value is None or (isinstance(value, str | list | dict | tuple) and not value):
            return True
        return any(type(value) is type(default) and value == default for default in self.silent)

    def is_refused(self, value: Any) -> bool:
        """Return True if the agent refuses to start with this value."""
        return self.refused and not self.is_silent(value) and value not in self.accepted
