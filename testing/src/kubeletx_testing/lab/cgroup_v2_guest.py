"""Runs a command on this machine's own files in an emulated virtual machine whose kernel has only cgroup v2.

Most machines that run the tests have one version of cgroups, and the version cannot be changed without a restart. The
guest differs from this machine in its kernel alone, so that the tests of this repository run in it unchanged:

| part | from |
|---|---|
| kernel and modules | linux-image (generic) of Debian, unpacked, booted directly with an initramfs of busybox |
| root file system | an overlay: this machine's ``/``, shared read-only by 9p, below packages of Debian that are asked for, below a tmpfs |
| /tmp, /run, /dev/shm | tmpfs; of this machine's files there, a clone of the repository, its tools and its cache are shown |
| /sys/fs/cgroup | cgroup2 with all controllers; ``cgroup_no_v1=all`` |
| network | ``lo`` |
| swap | none; a test makes a zram device |

Everything that the command writes is lost when it ends, except what it writes into `RESULTS`, a directory of this
machine. The emulator runs without KVM: programs are 10 to 30 times slower than here, and the guest is up after about
six seconds. A guest needs 1 GiB of memory or more; it is taken from this machine as it is used.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from .cpio import CpioArchive
from .images import default_cache_dir, is_static
from .machine_parts import Kernel, kernel_package, module_files, only_builder, unpack_packages
from .process import Daemon, LabError
from .tools import TOOLS_VARIABLE, get_tool, search_path

RESULTS = Path("/run/results")
"""Directory in the guest that is a directory of this machine; see `run_with_cgroup_v2`."""

_WHOLE = "/run/whole"
"""Directory in the guest that has this machine's files below /tmp and /run too."""
_MODULES = (
    "virtio_pci",
    "virtio-rng",
    "9pnet_virtio",
    "9p",
    "overlay",
    "fuse",
    "zram",
    "veth",
    "bridge",
    "af_packet",
    "crc32c_generic",
    "nft_compat",
    "nft_chain_nat",
    "xt_comment",
    "xt_nat",
    "xt_mark",
    "xt_MASQUERADE",
    "xt_conntrack",
    "xt_addrtype",
    "xt_multiport",
    "xt_tcpudp",
)
_INIT = f"""\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*.ko; do insmod "$module"; done
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 host /host
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=512000 packages /packages
mount -t tmpfs tmpfs /over
mkdir /over/upper /over/work
mount -t overlay -o lowerdir=/packages:/host,upperdir=/over/upper,workdir=/over/work root /new
for one in proc sys dev; do mount --move /$one /new/$one; done
mkdir -p /new/dev/pts /new/dev/shm /whole
mount -t devpts devpts /new/dev/pts
mount --bind /new /whole
for one in dev/shm run tmp; do mount -t tmpfs tmpfs /new/$one; done
mkdir -p /new{_WHOLE}
mount --move /whole /new{_WHOLE}
mount -t cgroup2 cgroup2 /new/sys/fs/cgroup
mkdir -p /new/run/lock /new{RESULTS}
cp /bin/busybox /new/run/busybox
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 results /new{RESULTS}
ip link set lo up
exec switch_root /new {RESULTS}/command
"""
_KERNEL_OPTIONS = (
    "console=ttyS0 quiet panic=-1 no_timer_check mitigations=off nokaslr cryptomgr.notests cgroup_no_v1=all"
)
"""Not tsc=reliable: a kernel that was interrupted while it calibrated its clock would keep the wrong rate."""
_MEMORY_MIB = 2048
_PROCESSORS = 1
"""Two take almost twice the processor time: emulated processors wait for each other."""


class GuestRun(NamedTuple):
    """Result of a command in the guest.

    `status`: its exit status; None if it did not end, because the guest crashed. `output`: standard output and
    standard error. `console`: what the kernel printed, and the emulator.
    """

    status: int | None
    output: str
    console: str


def run_with_cgroup_v2(
    command: Sequence[str],
    results: Path,
    *,
    directory: Path,
    timeout_seconds: float,
    modules: Sequence[str] = (),
    packages: Sequence[str] = (),
) -> GuestRun:
    """Run a command as root in a new guest, wait until it ends, and switch the guest off.

    `results`: directory of this machine, which must exist; the command may write there, as `RESULTS`, and its output
    is in the file ``output`` meanwhile. `directory`: in which it runs. `modules`: of the kernel, loaded in addition.
    `packages`: of Debian, unpacked in the guest only, without those that they depend on. Raises LabError if the guest
    runs after `timeout_seconds`, which includes its start.
    """
    made = _boot_files((*_MODULES, *modules), packages)
    script = results / "command"
    script.write_text(_script(command, directory))
    script.chmod(0o755)
    return run_emulator(_emulator(made, results), results, timeout_seconds=timeout_seconds)


def run_emulator(argv: Sequence[str], results: Path, *, timeout_seconds: float) -> GuestRun:
    """Run the emulator of a guest until it ends, and return what the guest wrote into `results`."""
    emulator = Daemon(name="console", argv=argv, directory=results)
    for earlier in (results / "status", results / "output", emulator.log_path):
        earlier.unlink(missing_ok=True)
    emulator.start()
    try:
        emulator.wait(timeout_seconds)
    except LabError as err:
        raise LabError(
            f"the guest runs after {timeout_seconds:g} s: {_read(results / 'output')[-2000:]}"
        ) from err
    finally:
        emulator.kill()
    status = _read(results / "status").strip()
    return GuestRun(int(status) if status else None, _read(results / "output"), _read(emulator.log_path))


def _script(command: Sequence[str], directory: Path) -> str:
    environment = {
        "PATH": search_path(),
        "HOME": str(Path.home()),
        "LANG": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        **{name: os.environ[name] for name in (TOOLS_VARIABLE, "XDG_CACHE_HOME") if name in os.environ},
    }
    needed = (directory, Path(sys.prefix), default_cache_dir(), Path(environment.get(TOOLS_VARIABLE, "/")))
    return "\n".join(
        [
            "#!/run/busybox sh",
            *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
            "bb=/run/busybox",
            *(
                f"[ -e {one} ] || {{ $bb mkdir -p {one}; $bb mount --bind {_WHOLE}{one} {one}; }}"
                for one in (shlex.quote(str(path)) for path in needed if path.exists())
            ),
            f"cd {shlex.quote(str(directory))} && {shlex.join(command)} >{RESULTS}/output 2>&1",
            f"echo $? >{RESULTS}/status",
            "/run/busybox poweroff -f",
            "",
        ]
    )


def _emulator(made: Path, results: Path) -> list[str]:
    shares = {
        "host": "path=/,readonly=on,multidevs=remap",
        "packages": f"path={made / 'packages'},readonly=on",
        "results": f"path={results}",
    }
    arguments = [
        get_tool("qemu-system-x86_64"),
        "-machine",
        "q35",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "qemu64",  # programs take a sixth less processor time than with the features of "max"
    ]
    arguments += ["-smp", str(_PROCESSORS), "-m", str(_MEMORY_MIB), "-nodefaults", "-no-reboot"]
    arguments += ["-display", "none", "-monitor", "none", "-serial", "stdio", "-device", "virtio-rng-pci"]
    for name, options in shares.items():
        arguments += ["-fsdev", f"local,id={name},security_model=none,{options}"]
        arguments += ["-device", f"virtio-9p-pci,fsdev={name},mount_tag={name}"]
    return [
        *arguments,
        "-kernel",
        str(made / "vmlinuz"),
        "-initrd",
        str(made / "initramfs"),
        "-append",
        _KERNEL_OPTIONS,
    ]


def _boot_files(modules: Sequence[str], packages: Sequence[str]) -> Path:
    """Return the directory of kernel, initramfs and packages, which is made if it is not in the cache."""
    parent = default_cache_dir().parent / "machines"
    parent.mkdir(parents=True, exist_ok=True)
    busybox = Path(get_tool("busybox")).read_bytes()
    if not is_static(busybox):
        raise LabError("busybox is not static and cannot run in an initramfs: install busybox-static")
    package = kernel_package(Kernel.GENERIC)
    parts = f"{package} {modules} {packages} {_INIT}"
    key = hashlib.sha256(busybox + parts.encode()).hexdigest()[:16]
    made = parent / f"cgroup-v2-{key}"
    with only_builder(parent) as scratch:
        if not made.exists():
            _make(scratch, made, (package, *packages), modules=modules, busybox=busybox)
    return made


def _make(
    scratch: Path, made: Path, packages: Sequence[str], *, modules: Sequence[str], busybox: bytes
) -> None:
    unpacked, result = scratch / "unpacked", scratch / "result"
    unpack_packages(packages[:1], scratch, unpacked)
    (kernel,) = unpacked.glob("boot/vmlinuz-*")
    (directory,) = unpacked.glob("lib/modules/*")
    root = result / "packages"
    unpack_packages(packages[1:], scratch, root)
    for directory_name in ("bin", "lib", "sbin"):  # links to those below usr, which a directory would hide
        if (root / directory_name).exists():
            shutil.copytree(
                root / directory_name, root / "usr" / directory_name, symlinks=True, dirs_exist_ok=True
            )
            shutil.rmtree(root / directory_name)
    archive = CpioArchive()
    for name in ("bin", "dev", "host", "modules", "new", "over", "packages", "proc", "sys"):
        archive.directory(name)
    archive.device("dev/console", 5, 1)
    archive.file("bin/busybox", busybox, 0o755)
    archive.file("init", _INIT.encode(), 0o755)
    for index, module in enumerate(module_files(directory, modules)):
        archive.file(f"modules/{index:03}-{module.name}", module.read_bytes(), 0o644)
    kernel.replace(result / "vmlinuz")
    (result / "initramfs").write_bytes(gzip.compress(archive.finish(), 6, mtime=0))
    result.replace(made)


def _read(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
