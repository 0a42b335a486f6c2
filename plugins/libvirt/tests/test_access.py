"""In which group libvirt runs emulators."""

from __future__ import annotations

import pytest
from kubeletx_libvirt.access import emulator_gid


def capabilities(*models: str) -> str:
    return f"<capabilities><host>{''.join(models)}</host></capabilities>"


def dac(label: str) -> str:
    return (
        "<secmodel><model>dac</model><doi>0</doi>"
        f"<baselabel type='kvm'>{label}</baselabel><baselabel type='qemu'>{label}</baselabel></secmodel>"
    )


NONE = "<secmodel><model>none</model><doi>0</doi></secmodel>"


@pytest.mark.parametrize(
    ("text", "gid"),
    [
        (capabilities(NONE, dac("+64055:+994")), 994),
        (capabilities(dac("64055:994")), 994),
        (capabilities(NONE, dac("+0:+0")), None),
        (capabilities(NONE), None),
        (capabilities(), None),
    ],
)
def test_the_group_of_emulators_is_what_libvirt_says(text: str, gid: int | None) -> None:
    assert emulator_gid(text) == gid
