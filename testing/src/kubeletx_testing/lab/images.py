"""The container images that demo, tests and benchmarks run, all made of Debian's static busybox.

| image | what it does |
|---|---|
| pause | process of a sandbox: waits for ever, collects orphans, ends at once on SIGTERM |
| busybox | every applet linked (sh, sleep, wget, nc, httpd, ...), no entry point |
| web | busybox httpd on port 8080, serves / and /healthz; environment PORT and PAGE change it |
| web-user | the same as user 1000, for runAsNonRoot |
| named-user | busybox whose user is a name, which runAsNonRoot must refuse |
| crash | prints a line and exits 1 |

Images are packed once and kept in a cache directory, because compressing takes most of a second.
"""

from __future__ import annotations

import hashlib
import os
import platform
import struct
from collections.abc import Mapping
from pathlib import Path

import msgspec

from .oci import Entry, Image, build_image, build_layer
from .process import LabError, run
from .tools import get_tool

TAG = "1"
REGISTRY_NAME = "registry.local"
"""Registry host in the references of the lab's images. The lab's containerds pull them from the private registry."""

_RECIPE_VERSION = 3
_PT_INTERP = 3
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "ppc64le": "ppc64le", "s390x": "s390x"}

_PAUSE_SCRIPT = b"""#!/bin/sh
trap 'exit 0' TERM INT
while :; do sleep 2147483647 & wait; done
"""

_WEB_SCRIPT = b"""#!/bin/sh
mkdir -p /tmp/www
echo "${PAGE:-hello from $(hostname)}" > /tmp/www/index.html
echo ok > /tmp/www/healthz
trap 'exit 0' TERM INT
httpd -f -p "${PORT:-8080}" -h /tmp/www &
wait
"""

_PASSWD = (
    b"root:x:0:0:root:/root:/bin/sh\nweb:x:1000:1000:web:/home:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n"
)
_GROUP = b"root:x:0:\nweb:x:1000:\nextra:x:2000:web\nnobody:x:65534:\n"
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def image_ref(name: str, tag: str = TAG) -> str:
    """Return the reference of a lab image for manifests: ``registry.local/NAME:TAG``."""
    return f"{REGISTRY_NAME}/{name}:{tag}"


def default_cache_dir() -> Path:
    """Return the directory for packed images.

    It is ``$XDG_CACHE_HOME/kubeletx/images``, or ``~/.cache/kubeletx/images`` if that variable is not set.
    """
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "kubeletx" / "images"


def load_images(cache_dir: Path | None = None) -> tuple[Image, ...]:
    """Return all images of the lab. They are built if the cache does not have them for this busybox.

    `cache_dir`: None: `default_cache_dir`.
    """
    cache_dir = cache_dir or default_cache_dir()
    busybox = _read_busybox()
    key = hashlib.sha256(busybox + str(_RECIPE_VERSION).encode()).hexdigest()[:16]
    path = cache_dir / f"{key}.msgpack"
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=tuple[Image, ...])
    except (FileNotFoundError, msgspec.MsgspecError):
        images = _build_all(busybox)
    cache_dir.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_bytes(msgspec.msgpack.encode(images))
    temporary.replace(path)
    return images


def make_image(name: str, *, tag: str, size_bytes: int = 0, env: Mapping[str, str] | None = None) -> Image:
    """Build a new busybox image.

    `size_bytes`: number of random bytes in an extra layer, for a slow or large pull. `env`: further
    environment variables.
    """
    busybox = _read_busybox()
    ballast = Entry(path="ballast", content=os.urandom(size_bytes), mode=0o644)
    return build_image(
        name=name,
        tag=tag,
        layers=[build_layer(_busybox_entries(busybox)), build_layer([ballast])],
        config={"Env": [_PATH, *(f"{key}={value}" for key, value in (env or {}).items())], "Cmd": ["sh"]},
        architecture=_architecture(),
    )


def is_static(program: bytes) -> bool:
    """Return True if `program` is an ELF program without an interpreter, which therefore needs no libraries.

    It must be 64-bit and little-endian.
    """
    if program[:6] != b"\x7fELF\x02\x01":
        return False
    (table,) = struct.unpack_from("<Q", program, 32)
    entry_size, count = struct.unpack_from("<HH", program, 54)
    types = [struct.unpack_from("<I", program, table + index * entry_size)[0] for index in range(count)]
    return _PT_INTERP not in types


def _read_busybox() -> bytes:
    path = get_tool("busybox")
    program = Path(path).read_bytes()
    if not is_static(program):
        raise LabError(f"{path} is not static and cannot run in an empty image: install busybox-static")
    return program


def _build_all(busybox: bytes) -> tuple[Image, ...]:
    base = build_layer(_busybox_entries(busybox))
    pause = build_layer([Entry(path="pause", content=_PAUSE_SCRIPT)])
    web = build_layer([Entry(path="web", content=_WEB_SCRIPT)])
    exposed: dict[str, dict[str, str]] = {"8080/tcp": {}}
    recipes: dict[str, tuple[list[bytes], dict[str, object]]] = {
        "pause": ([base, pause], {"Env": [_PATH], "Entrypoint": ["/pause"]}),
        "busybox": ([base], {"Env": [_PATH], "Cmd": ["sh"]}),
        "web": ([base, web], {"Env": [_PATH], "Entrypoint": ["/web"], "ExposedPorts": exposed}),
        "web-user": (
            [base, web],
            {"Env": [_PATH], "Entrypoint": ["/web"], "ExposedPorts": exposed, "User": "1000:1000"},
        ),
        "named-user": ([base], {"Env": [_PATH], "Cmd": ["sleep", "3600"], "User": "web"}),
        "crash": (
            [base],
            {"Env": [_PATH], "Entrypoint": ["/bin/sh", "-c", "echo this container fails; exit 1"]},
        ),
    }
    return tuple(
        build_image(name=name, tag=TAG, layers=layers, config=config, architecture=_architecture())
        for name, (layers, config) in recipes.items()
    )


def _busybox_entries(busybox: bytes) -> list[Entry]:
    """Return a small root file system: busybox, a link for each applet, /etc, and the usual empty directories."""
    listing = run(get_tool("busybox"), "--list").split()
    entries = [
        Entry(path=name) for name in ("bin", "etc", "dev", "proc", "sys", "root", "home", "usr", "var")
    ]
    entries += [
        Entry(path="tmp", mode=0o1777),
        Entry(path="usr/bin"),
        Entry(path="bin/busybox", content=busybox),
    ]
    entries += [Entry(path=f"bin/{name}", link="busybox") for name in listing if name != "busybox"]
    entries += [Entry(path="usr/bin/env", link="/bin/busybox")]
    entries += [Entry(path="etc/passwd", content=_PASSWD, mode=0o644)]
    entries += [Entry(path="etc/group", content=_GROUP, mode=0o644)]
    return entries


def _architecture() -> str:
    machine = platform.machine()
    return _ARCHITECTURES.get(machine, machine)
