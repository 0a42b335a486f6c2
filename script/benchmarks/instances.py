"""Instances of `standby-memory`: a small web server in Python and one in Node.js, and their images.

Each imports what such servers import, fills its heap with records, and answers a request from some of them. The images
are made of this machine's own interpreters and the libraries that they are linked with.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeletx_testing.lab import Lab, pod_manifest
from kubeletx_testing.lab.images import _architecture, image_ref
from kubeletx_testing.lab.oci import Entry, build_image, build_layer
from kubeletx_testing.lab.process import run_to_end

from .standby_lab import QUARK

RECORDS_PER_MIB: Final = {"python": 1100, "node": 2600}
"""Number of records that fill about a MiB of the heap."""

_PYTHON = """\
import asyncio, concurrent.futures, dataclasses, decimal, email, hashlib, http.server, json, logging, os, random
import sqlite3, ssl, statistics, urllib.request, uuid, xml.etree.ElementTree, zoneinfo

words = "pod node web standby freeze wake list watch lease probe volume image secret token route cache".split()
shuffled = random.Random(7)
records = [
    {
        "id": str(uuid.UUID(int=shuffled.getrandbits(128))),
        "name": f"{shuffled.choice(words)}-{shuffled.randrange(10**6)}",
        "owner": f"{shuffled.choice(words)}@example.com",
        "tags": shuffled.sample(words, 4),
        "score": shuffled.random(),
    }
    for _ in range(int(os.environ["RECORDS"]))
]

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        found = [records[shuffled.randrange(len(records))] for _ in range(100)]
        body = json.dumps({"mean": statistics.mean(one["score"] for one in found), "items": found}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""

_NODE = """\
const http = require("http"), crypto = require("crypto"), zlib = require("zlib"), fs = require("fs");
const https = require("https"), url = require("url"), util = require("util"), stream = require("stream");
const words = "pod node web standby freeze wake list watch lease probe volume image secret token route cache".split(" ");
let seed = 7;
const random = (below) => (seed = (seed * 1103515245 + 12345) % 2147483648) % below;
const records = [];
for (let number = 0; number < Number(process.env.RECORDS); number++) {
  records.push({
    id: crypto.createHash("sha256").update(String(number)).digest("hex").slice(0, 36),
    name: `${words[random(words.length)]}-${random(1000000)}`,
    owner: `${words[random(words.length)]}@example.com`,
    tags: [0, 1, 2, 3].map(() => words[random(words.length)]),
    score: random(1000000) / 1000000,
  });
}
http.createServer((request, response) => {
  const found = Array.from({ length: 100 }, () => records[random(records.length)]);
  const mean = found.reduce((sum, one) => sum + one.score, 0) / found.length;
  response.end(JSON.stringify({ mean, items: found }));
}).listen(Number(process.env.PORT), "127.0.0.1");
"""

_LEFT_OUT = re.compile(r"(config-|test$|lib2to3|pydoc_data|distutils|ensurepip|idlelib|turtle|tkinter)")
"""Parts of Python's library that no server needs."""


class Instance(msgspec.Struct, frozen=True):
    """A kind of instance. `program`: path of its interpreter on this machine, and in its image."""

    kind: str
    program: Path

    def manifest(self, name: str, port: int, heap_mib: int) -> dict[str, Any]:
        """Manifest of a pod that serves on `port` of the node's loopback address. `heap_mib`: size of its records."""
        extension = "py" if self.kind == "python" else "js"
        variables = {"PORT": port, "RECORDS": heap_mib * RECORDS_PER_MIB[self.kind]}
        return pod_manifest(
            name,
            runtime=QUARK,
            image=f"bench-{self.kind}",
            command=(str(self.program), f"/server.{extension}"),
            container={"env": [{"name": key, "value": str(value)} for key, value in variables.items()]},
            spec={"hostNetwork": True, "terminationGracePeriodSeconds": 0},
        )

    @property
    def image(self) -> str:
        """Reference of the instance's image."""
        return image_ref(f"bench-{self.kind}")

    def push(self, lab: Lab) -> None:
        """Make the image and push it to the lab's registry."""
        paths = set(_linked(self.program))
        if self.kind == "python":
            paths |= set(_library(self.program))
        entries = {str(path): _file(path) for path in {self.program, *paths}}
        for directory in {parent for path in paths | {self.program} for parent in path.parents}:
            entries.setdefault(str(directory), Entry(path=str(directory).lstrip("/")))
        entries.pop("/", None)
        script = ("py", _PYTHON) if self.kind == "python" else ("js", _NODE)
        entries[f"/server.{script[0]}"] = Entry(
            path=f"server.{script[0]}", content=script[1].encode(), mode=0o644
        )
        entries["/tmp"] = Entry(path="tmp", mode=0o1777)
        image = build_image(
            name=f"bench-{self.kind}",
            tag="1",
            layers=[build_layer(entries.values())],
            config={"Cmd": [str(self.program)]},
            architecture=_architecture(),
        )
        lab.registry.push([image])


def find_instances() -> tuple[list[Instance], list[str]]:
    """Return the instances that this machine has interpreters for, and the kinds that are missing."""
    present, missing = [], []
    for kind, names in (("python", ("/usr/bin/python3",)), ("node", ("node", "nodejs"))):
        program = next((path for name in names if (path := shutil.which(name))), None)
        if program is None:
            missing.append(kind)
        else:
            present.append(Instance(kind, Path(program).resolve()))
    return present, missing


def _library(program: Path) -> Iterator[Path]:
    """Yield the files of Python's library, and the shared libraries of its extension modules."""
    asked = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    root = Path(_output(program, "-I", "-c", asked).strip())
    linked: set[Path] = set()
    for path in root.rglob("*"):
        inside = path.relative_to(root)
        if (
            not path.is_file()
            or any(_LEFT_OUT.match(part) for part in inside.parts)
            or "dist-packages" in inside.parts
        ):
            continue
        yield path
        if path.suffix == ".so":
            linked |= set(_linked(path))
    yield from linked


def _linked(program: Path) -> Iterator[Path]:
    """Yield the shared libraries of a program or library, with the loader, at the paths under which it finds them."""
    for line in _output("ldd", program).splitlines():
        path = re.search(r"(/\S+) \(0x", line)
        if path is not None:
            yield Path(path[1])


def _file(path: Path) -> Entry:
    return Entry(path=str(path).lstrip("/"), content=path.read_bytes(), mode=path.stat().st_mode & 0o777)


def _output(*command: str | Path) -> str:
    return run_to_end(*command, timeout_seconds=60).stdout
