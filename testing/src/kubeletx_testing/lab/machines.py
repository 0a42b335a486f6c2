"""A small virtual machine that boots: a disk image built here from Debian's packages, for tests and the demo.

| part | from |
|---|---|
| kernel and modules | linux-image (cloud; `Kernel.GENERIC` also has 9p and the i6300esb watchdog), unpacked |
| boot loader | syslinux on a FAT file system without partitions, written with mtools |
| root file system | an initramfs: busybox-static, qemu-guest-agent with the libraries it needs |

The guest reads the NoCloud seed (a disk labelled ``cidata``): hostname, static addresses, vendor-data and
user-data (scripts are run). It answers HTTP on port 80: ``/`` is its hostname, ``/seed/meta-data`` and so on
are the files of the seed, ``/cgi-bin/facts`` shows its addresses, memory, processors and boot id. On the
serial console it prints ``guest is up`` and then a login prompt (root, password ``kubeletx``). It shuts down
on the power button, and its guest agent executes requests. Its disk is writable below ``/disk``, so tests can
check what survives a restart.

Building takes some seconds. The image is kept in the cache directory under a name that changes with its
parts.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from .cpio import CpioArchive
from .images import default_cache_dir, is_static
from .machine_parts import Kernel as Kernel
from .machine_parts import kernel_package, module_files, only_builder, silent, unpack_packages
from .process import LabError, run
from .tools import get_tool

PASSWORD = "kubeletx"
"""Password of root on the console."""
UP = "guest is up"
"""Line that the guest prints on its serial console once everything is started."""
SHARING_KERNELS = {"virtiofs": Kernel.CLOUD, "9p": Kernel.GENERIC}
"""Kernel of a guest for each way to share directories. The generic one takes twice the processor time to boot."""

_RECIPE_VERSION = 2
_DISK_BYTES = 64 << 20
_MODULES = (
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_console",
    "virtio-rng",
    "virtio_balloon",
    "virtio_mem",
    "isofs",
    "sr_mod",
    "ata_piix",
    "ahci",
    "virtio_scsi",
    "sd_mod",
    "vfat",
    "nls_cp437",
    "nls_ascii",
    "nls_iso8859-1",
    "ext4",
    "evdev",
    "button",
    "pvpanic-pci",
    "pvpanic-mmio",
    "virtiofs",
    "9pnet_virtio",
    "9p",
    "i6300esb",
    "af_packet",
)
"""Kernel modules to load at boot, in this order, with their dependencies.

Modules that the kernel lacks or has built in are skipped.
"""

_FILES: dict[str, tuple[int, str]] = {
    "etc/inittab": (
        0o644,
        """\
::sysinit:/etc/rc
ttyS0::respawn:/sbin/getty -L 115200 ttyS0 vt100
::respawn:/etc/agent
::ctrlaltdel:/sbin/reboot
::shutdown:/etc/stop
""",
    ),
    "etc/rc": (
        0o755,
        r"""#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts /dev/shm /run
mount -t devpts devpts /dev/pts
for module in /modules/*.ko; do insmod "$module" 2>/dev/null; done
rm -r /modules
mdev -s
ip link set lo up
mount -t vfat /dev/vda /disk 2>/dev/null
[ -e /disk/boots ] && boots=$(cat /disk/boots)
echo $((${boots:-0} + 1)) > /disk/boots
sync
mkdir -p /www/seed /www/cgi-bin /mnt/seed
seed=$(findfs LABEL=cidata 2>/dev/null || findfs LABEL=CIDATA 2>/dev/null)
if [ -n "$seed" ] && mount -t iso9660 -o ro "$seed" /mnt/seed; then
    cp /mnt/seed/* /www/seed/
    umount /mnt/seed
fi
cd /www/seed
name=$(sed -n 's/^ *"\{0,1\}local-hostname"\{0,1\}: *"\{0,1\}\([^",]*\).*/\1/p' meta-data 2>/dev/null | head -n 1)
hostname "${name:-guest}"
hostname > /www/index.html
/etc/network
[ -e vendor-data ] && sh vendor-data > /dev/console 2>&1
acpid -f -l /dev/null &
httpd -p 80 -h /www
if [ -e user-data ]; then
    case "$(head -c 2 user-data)" in
        '#!') cp user-data /run/user-data && chmod 755 /run/user-data && /run/user-data > /dev/console 2>&1 ;;
    esac
fi
echo "guest is up" > /dev/console
""",
    ),
    "etc/network": (
        0o755,
        r"""#!/bin/sh
# The static part of a netplan file (version 2, block style) as cloud-init would apply it.
[ -e /www/seed/network-config ] || exit 0
tr -d "\"'" < /www/seed/network-config | awk '
    { sub(/#.*/, ""); depth = match($0, /[^ ]/) - 1 }
    /^ *(macaddress|- *macaddress): / { mac = $NF; list = ""; print "mac", mac }
    /^ *addresses: *$/ { list = "address"; at = depth; next }
    /^ *search: *$/ { list = "search"; next }
    /^ *nameservers: *$/ { dns = depth; list = ""; next }
    /^ *routes: *$/ { list = ""; dns = -1 }
    /^ *gateway4: / { print "route", "default", $NF }
    /^ *gateway6: / { print "route", "::/0", $NF }
    /^ *mtu: / { print "mtu", $NF }
    /to: / { to = $NF }
    /via: / { print "route", to, $NF }
    /^ *- / { item = $2; if (list == "address") print (index(item, "/") ? "address" : "dns"), item
              if (list == "search") print "search", item }
' | while read -r word one two; do
    case "$word" in
        mac)
            device=
            for path in /sys/class/net/*; do
                [ "$(cat "$path/address")" = "$(echo "$one" | tr A-F a-f)" ] && device=${path##*/}
            done
            [ -n "$device" ] && ip link set "$device" up ;;
        mtu) ip link set "$device" mtu "$one" ;;
        address) ip addr add "$one" dev "$device" ;;
        route)
            case "$one" in 0.0.0.0/0) one=default ;; esac
            ip route add "$two" dev "$device" 2>/dev/null
            ip route add "$one" via "$two" dev "$device" ;;
        dns) echo "nameserver $one" >> /etc/resolv.conf ;;
        search) echo "search $one" >> /etc/resolv.conf ;;
    esac
done
""",
    ),
    "etc/agent": (
        0o755,
        """#!/bin/sh
port=/dev/virtio-ports/org.qemu.guest_agent.0
for path in /sys/class/virtio-ports/*; do
    [ "$(cat "$path/name" 2>/dev/null)" = org.qemu.guest_agent.0 ] && port=/dev/${path##*/}
done
[ -e "$port" ] || exec sleep 2147483647
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec /usr/sbin/qemu-ga --method=virtio-serial --path="$port" --statedir=/run --pidfile=/run/qemu-ga.pid
""",
    ),
    "etc/stop": (0o755, "#!/bin/sh\nsync\numount /disk 2>/dev/null\nexit 0\n"),
    "etc/acpi/PWRF/00000080": (0o755, "#!/bin/sh\n[ -e /run/ignore-power-button ] || poweroff\n"),
    "sbin/shutdown": (
        0o755,
        """#!/bin/sh
# As the guest agent calls it: shutdown -h|-P|-H|-r +0 "why".
case "$1" in -r) exec reboot ;; *) exec poweroff ;; esac
""",
    ),
    "www/cgi-bin/facts": (
        0o755,
        """#!/bin/sh
printf 'Content-Type: text/plain\\r\\n\\r\\n'
echo "hostname $(hostname)"
echo "boot-id $(cat /proc/sys/kernel/random/boot_id)"
echo "boots $(cat /disk/boots 2>/dev/null)"
echo "processors $(nproc)"
awk '/MemTotal/ {print "memory-kib", $2}' /proc/meminfo
for path in /sys/class/net/*; do
    device=${path##*/}
    echo "link $device $(cat "$path/address") $(ip -o addr show dev "$device" | awk '{printf "%s ", $4}')"
done
ls /sys/block | sed 's/^/disk /'
""",
    ),
    "etc/group": (0o644, "root:x:0:\n"),
    "etc/hosts": (0o644, "127.0.0.1 localhost\n"),
    "etc/issue": (0o644, ""),
}

_SYSLINUX = """\
default linux
prompt 0
timeout 0
label linux
  kernel /vmlinuz
  initrd /initrd
  append console=ttyS0 quiet panic=5 printk.devkmsg=off tsc=reliable no_timer_check mitigations=off nokaslr cryptomgr.notests
"""


def load_machine_image(
    cache_dir: Path | None = None, *, kernel: Kernel = Kernel.CLOUD, say: Callable[[str], None] = silent
) -> Path:
    """Return the path of the bootable qcow2 image; the image is built if it is not in the cache.

    Guests must not write to it: use an overlay. `cache_dir`: directory of packed images, beside which this
    image is kept; None: the user's cache. `say`: called with a text at each step.
    """
    directory = (cache_dir or default_cache_dir()).parent / "machines"
    directory.mkdir(parents=True, exist_ok=True)
    busybox = Path(get_tool("busybox")).read_bytes()
    if not is_static(busybox):
        raise LabError("busybox is not static and cannot run in an initramfs: install busybox-static")
    say("looking for the newest kernel package")
    package = kernel_package(kernel)
    recipe = f"{_RECIPE_VERSION} {package} {_FILES} {_MODULES} {_SYSLINUX}".encode()
    key = hashlib.sha256(busybox + recipe).hexdigest()[:16]
    path = directory / f"{kernel.value}-{key}.qcow2"
    if path.exists():
        return path
    with only_builder(directory) as scratch:
        if not path.exists():
            _build(scratch, path, package=package, busybox=busybox, say=say)
    return path


def _build(scratch: Path, path: Path, *, package: str, busybox: bytes, say: Callable[[str], None]) -> None:
    unpacked = scratch / "unpacked"
    packages = (package, "qemu-guest-agent", "syslinux", "syslinux-common", "mtools")
    unpack_packages(packages, scratch, unpacked, say=say)
    say("packing the root file system")
    (kernel,) = unpacked.glob("boot/vmlinuz-*")
    (modules,) = unpacked.glob("lib/modules/*")
    initrd = scratch / "initrd"
    initrd.write_bytes(_initramfs(unpacked, modules, busybox))  # an emulated guest unpacks slowly
    say("writing the disk")
    config = scratch / "syslinux.cfg"
    config.write_text(_SYSLINUX)
    raw = scratch / "disk.raw"
    with raw.open("wb") as file:
        file.truncate(_DISK_BYTES)
    environment = {
        "PATH": f"{unpacked}/usr/bin:{os.defpath}",
        "MTOOLS_SKIP_CHECK": "1",
        "MTOOLSRC": "/dev/null",
        "LANG": "C.UTF-8",
    }
    tool = f"{unpacked}/usr/bin"
    heads, sectors = 16, 63
    cylinders = _DISK_BYTES // 512 // heads // sectors
    geometry = ("-h", str(heads), "-s", str(sectors), "-t", str(cylinders))
    run(f"{tool}/mformat", "-i", str(raw), *geometry, "-H", "0", "-v", "KUBELETX", "::", env=environment)
    for source, name in ((kernel, "vmlinuz"), (initrd, "initrd"), (config, "syslinux.cfg")):
        run(f"{tool}/mcopy", "-i", str(raw), str(source), f"::/{name}", env=environment)
    run(f"{tool}/syslinux", "--install", str(raw), env={**environment, "TMPDIR": str(scratch)})
    temporary = scratch / "disk.qcow2"
    run(get_tool("qemu-img"), "convert", "-f", "raw", "-O", "qcow2", str(raw), str(temporary))
    temporary.chmod(0o644)
    temporary.replace(path)


def _initramfs(unpacked: Path, modules: Path, busybox: bytes) -> bytes:
    archive = CpioArchive()
    for name in (
        "bin",
        "sbin",
        "etc",
        "dev",
        "proc",
        "sys",
        "run",
        "tmp",
        "root",
        "usr",
        "usr/bin",
        "usr/sbin",
    ):
        archive.directory(name)
    for name in (
        "disk",
        "mnt",
        "www",
        "www/seed",
        "www/cgi-bin",
        "etc/acpi",
        "etc/acpi/PWRF",
        "modules",
        "var",
    ):
        archive.directory(name)
    archive.link("var/run", "/run")
    archive.device("dev/console", 5, 1)
    archive.file("bin/busybox", busybox, 0o755)
    listing = run(get_tool("busybox"), "--list").split()
    for name in listing:
        if name != "busybox":
            archive.link(f"bin/{name}", "/bin/busybox")
    for name in ("init", "getty", "reboot", "poweroff", "halt"):
        archive.link(f"sbin/{name}", "/bin/busybox")
    archive.link("init", "/bin/busybox")
    for path, (mode, text) in _FILES.items():
        archive.file(path, text.encode(), mode)
    archive.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644)
    hashed = run(get_tool("busybox"), "mkpasswd", "-m", "sha256", "-S", "kubeletxsalt", PASSWORD).strip()
    archive.file("etc/shadow", f"root:{hashed}:19000:0:99999:7:::\n".encode(), 0o600)
    agent = unpacked / "usr/sbin/qemu-ga"
    archive.file("usr/sbin/qemu-ga", agent.read_bytes(), 0o755)
    for library in _libraries(agent):
        for parent in reversed(library.relative_to("/").parents[:-1]):
            archive.directory(str(parent))
        archive.file(str(library.relative_to("/")), library.resolve().read_bytes(), 0o755)
    for index, module in enumerate(module_files(modules, _MODULES)):
        archive.file(f"modules/{index:03}-{module.name}", module.read_bytes(), 0o644)
    return archive.finish()


def _libraries(program: Path) -> list[Path]:
    """Return the libraries that this machine's dynamic linker finds for `program`. The guest needs the same ones."""
    listing = run("ldd", str(program))
    if "not found" in listing:
        raise LabError(f"libraries of qemu-guest-agent are missing here:\n{listing}")
    return [Path(library) for library in re.findall(r"(/\S+) \(0x", listing)]
