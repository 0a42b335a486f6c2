"""Disks of the machine: an EFI system partition with a boot loader and two images, and one that keeps the node's state.

Both images have Debian's kernel and an initramfs of busybox that mounts the root file system; they differ in the options
of their kernels, which say what goes wrong in them.
"""

from __future__ import annotations

import gzip
import hashlib
import shutil
from pathlib import Path
from typing import Final

from kubeletx_testing.lab.cpio import CpioArchive
from kubeletx_testing.lab.images import default_cache_dir, is_static
from kubeletx_testing.lab.machine_parts import (
    Kernel,
    kernel_package,
    module_files,
    only_builder,
    unpack_packages,
)
from kubeletx_testing.lab.process import LabError, run
from kubeletx_testing.lab.tools import get_tool

HERE: Final = Path(__file__).parent
LOADERS: Final = ("systemd-boot", "grub")
OPTIONS: Final = "console=ttyS0 quiet panic=2 tsc=reliable no_timer_check random.trust_cpu=on mitigations=off kubeletx.slot="
# fmt: off
_MODULES: Final = (
    "virtio_pci", "virtio-rng", "virtio_blk", "vfat", "nls_cp437", "nls_ascii", "ext4", "crc32c_generic", "efivarfs",
    "i6300esb",
)
FIRMWARE: Final = Path("/usr/share/OVMF")
_SYSTEMD_BOOT: Final = Path("/usr/lib/systemd/boot/efi/systemd-bootx64.efi")
_GRUB_MODULES: Final = (
    "part_gpt", "fat", "normal", "configfile", "linux", "loadenv", "test", "echo", "search", "reboot"
)
# fmt: on
_GRUB_CFG: Final = """\
menuentry {label} --id kubeletx-{label} {{
    set options=
    source /{place}/options.cfg
    linux /{place}/vmlinuz {options}{label} $options
    initrd /{place}/initramfs
}}
"""
_ESP_OFFSET: Final = 1 << 20
_ESP_BYTES: Final = 96 << 20


def make_disks(loader: str, directory: Path) -> list[Path]:
    """Make the disk that is booted, with IMGA active, an empty one for /persist, and EFI variables."""
    image = _image()
    disk, persist = directory / "disk.img", directory / "persist.img"
    tree = directory / "esp"
    for label in ("imga", "imgb"):
        for name in ("vmlinuz", "initramfs"):
            _put(tree / label / name, (image / name).read_bytes())
    if loader == "grub":
        _grub(tree)
    else:
        _systemd_boot(tree)
    disk.write_bytes(b"")
    with disk.open("r+b") as file:
        file.truncate(_ESP_OFFSET + _ESP_BYTES + (1 << 20))
    layout = directory / "layout"
    layout.write_text(f"label: gpt\nstart={_ESP_OFFSET // 512}, size={_ESP_BYTES // 512}, type=U\n")
    run("sh", "-c", f"{get_tool('sfdisk')} -q '{disk}' <'{layout}'")
    offset = str(_ESP_OFFSET // 512)
    run(get_tool("mkfs.vfat"), "-F", "32", "--offset", offset, disk, str(_ESP_BYTES // 1024))
    run(get_tool("mcopy"), "-s", "-i", f"{disk}@@{_ESP_OFFSET}", *sorted(tree.iterdir()), "::/")
    run(get_tool("mkfs.ext4"), "-q", persist, "64M")
    variables = directory / "variables.img"
    shutil.copy(FIRMWARE / "OVMF_VARS_4M.fd", variables)
    disks = [disk, persist, variables]
    for raw in disks:  # QEMU's own format can keep a state to go back to
        run(get_tool("qemu-img"), "convert", "-O", "qcow2", "-f", "raw", raw, raw.with_suffix(".qcow2"))
    return [raw.with_suffix(".qcow2") for raw in disks]


def _systemd_boot(tree: Path) -> None:
    if not _SYSTEMD_BOOT.exists():
        raise LabError(f"{_SYSTEMD_BOOT} is missing: install systemd-boot-efi")
    _put(tree / "EFI" / "BOOT" / "BOOTX64.EFI", _SYSTEMD_BOOT.read_bytes())
    _put(tree / "loader" / "loader.conf", b"timeout 0\n")
    for label, counter in (("imga", ""), ("imgb", "+0")):
        entry = (
            f"title {label}\nversion 0\nlinux /{label}/vmlinuz\ninitrd /{label}/initramfs\n"
            f"options {OPTIONS}{label.upper()}\n"
        )
        _put(tree / "loader" / "entries" / f"kubeletx-1-{label}{counter}.conf", entry.encode())


def _grub(tree: Path) -> None:
    program = tree / "EFI" / "BOOT" / "BOOTX64.EFI"
    program.parent.mkdir(parents=True)
    arguments = ("-O", "x86_64-efi", "-p", "/grub", "-o", program)
    run(get_tool("grub-mkimage"), *arguments, *_GRUB_MODULES)
    snippet = (HERE.parent.parent / "deploy" / "grub" / "kubeletx.cfg").read_text()
    menu = [_GRUB_CFG.format(label=one.upper(), place=one, options=OPTIONS) for one in ("imga", "imgb")]
    _put(tree / "grub" / "grub.cfg", "".join(("set timeout=0\n", *menu, snippet)).encode())
    block = tree / "grub" / "grubenv"
    run(get_tool("grub-editenv"), block, "create")
    run(get_tool("grub-editenv"), block, "set", "kubeletx_IMGA=active", "kubeletx_IMGA_version=0")
    for label in ("imga", "imgb"):
        _put(tree / label / "options.cfg", b"set options=\n")


def _image() -> Path:
    """Return the directory of ``vmlinuz`` and ``initramfs``, which is made if it is not in the cache."""
    parent = default_cache_dir().parent / "machines"
    parent.mkdir(parents=True, exist_ok=True)
    busybox, init = Path(get_tool("busybox")).read_bytes(), (HERE / "init.sh").read_bytes()
    if not is_static(busybox):
        raise LabError("busybox is not static and cannot run in an initramfs: install busybox-static")
    package = kernel_package(Kernel.GENERIC)
    key = hashlib.sha256(busybox + init + f"{package} {_MODULES}".encode()).hexdigest()[:16]
    made = parent / f"upgrade-{key}"
    with only_builder(parent) as scratch:
        if not made.exists():
            unpacked, result = scratch / "unpacked", scratch / "result"
            result.mkdir()
            unpack_packages([package], scratch, unpacked)
            (kernel,) = unpacked.glob("boot/vmlinuz-*")
            (modules,) = unpacked.glob("lib/modules/*")
            kernel.replace(result / "vmlinuz")
            (result / "initramfs").write_bytes(_initramfs(busybox, init, modules))
            result.replace(made)
    return made


def _initramfs(busybox: bytes, init: bytes, modules: Path) -> bytes:
    archive = CpioArchive()
    for name in ("bin", "dev", "modules", "new", "proc", "sys"):
        archive.directory(name)
    archive.device("dev/console", 5, 1)
    archive.file("bin/busybox", busybox, 0o755)
    archive.file("init", init, 0o755)
    for index, module in enumerate(module_files(modules, _MODULES)):
        archive.file(f"modules/{index:03}-{module.name}", module.read_bytes(), 0o644)
    return gzip.compress(archive.finish(), 6, mtime=0)


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
