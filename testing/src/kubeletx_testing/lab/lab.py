"""The whole lab: an image registry with images, a pod network, and any number of containerds.

    with Lab(base_dir, containerds=("containerd-a", "containerd-b")) as lab:
        print(lab["containerd-a"].endpoint)

The demo, the integration tests and the benchmarks use it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from . import sweep
from .cni import PrivateNetwork
from .containerd import PrivateContainerd
from .images import load_images
from .process import LabError
from .registry import PrivateRegistry
from .tools import list_missing

DEFAULT_NAMES = ("containerd-a", "containerd-b")


class Lab:
    """A lab as a context manager.

    At the end everything is removed. With `logs_dir`, the containerds' logs are copied there before.
    """

    def __init__(
        self,
        base_dir: Path,
        *,
        containerds: Sequence[str] = DEFAULT_NAMES,
        cache_dir: Path | None = None,
        logs_dir: Path | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        """`base_dir`: directory that only this lab uses. `containerds`: names of the containerds to start.

        `cache_dir`: for packed images; None: the user's cache. `logs_dir`: directory to which the
        containerds' logs are copied at the end; None: they are not copied. `say`: called with a text at each
        step of the start.
        """
        self.base_dir = base_dir.resolve()
        self._names = tuple(containerds)
        self._cache_dir = cache_dir
        self._logs_dir = logs_dir
        self._ids: set[str] = set()
        self.is_ours = False
        """True from the moment at which `start` claims the base directory until `stop`."""
        self._say = say or (lambda _step: None)
        self.network = PrivateNetwork(self.base_dir)
        self.registry = PrivateRegistry(self.base_dir / "registry")
        self.containerds: dict[str, PrivateContainerd] = {}

    @property
    def endpoints(self) -> str:
        """Value for --container-runtime-endpoint, in which every containerd is a runtime of the same name."""
        return ";".join(
            f"container:{name}:{containerd.endpoint}" for name, containerd in self.containerds.items()
        )

    def start(self) -> None:
        """Remove what an aborted run left below the base directory, then start everything.

        Raises LabError if another living process owns the directory, or if this machine lacks something.
        """
        require()
        owner = sweep.find_owner(self.base_dir)
        if owner is not None:
            raise LabError(f"{self.base_dir} is in use by process {owner}; end that one first")
        sweep.clean(self.base_dir)
        sweep.claim(self.base_dir)
        self.is_ours = True
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop and remove everything; a second call does nothing. Does nothing if `start` was refused."""
        if not self.is_ours:
            return
        self._ids |= sweep.container_ids(self.base_dir)
        for containerd in self.containerds.values():
            containerd.stop()
            self._keep_log(containerd)
        self.containerds = {}
        self.registry.stop()
        self.network.stop()
        sweep.clean(self.base_dir)
        self.is_ours = False

    def leftovers(self) -> list[str]:
        """Return what still exists of this lab, one line for each object; empty after a `stop` without problems."""
        return sweep.leftovers(self.base_dir, ids=self._ids)

    def logs(self, lines: int = 60) -> str:
        """Return the last lines of each containerd's log, to be shown when a test fails."""
        parts = [
            f"--- {name} ---\n{containerd.daemon.log_tail(lines)}"
            for name, containerd in self.containerds.items()
        ]
        return "\n".join(parts)

    def __getitem__(self, name: str) -> PrivateContainerd:
        return self.containerds[name]

    def __enter__(self) -> Lab:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _keep_log(self, containerd: PrivateContainerd) -> None:
        if self._logs_dir is not None and containerd.log_path.is_file():
            self._logs_dir.mkdir(parents=True, exist_ok=True)
            (self._logs_dir / f"{containerd.name}.log").write_bytes(containerd.log_path.read_bytes())

    def _start(self) -> None:
        self._say("packing images")
        images = load_images(self._cache_dir)
        self._say("starting the image registry")
        self.registry.start()
        self.registry.push(images)
        self._say(f"making bridge {self.network.bridge}")
        self.network.start()
        self._say(f"starting {', '.join(self._names)}")
        for name in self._names:
            self.add_containerd(name).start(wait=False)
        for number, containerd in enumerate(self.containerds.values()):
            self._say(f"waiting for {containerd.name} ({number} of {len(self.containerds)} answer)")
            containerd.wait_until_ready()

    def add_containerd(self, name: str) -> PrivateContainerd:
        """Add another containerd with the same network and registry, without starting it. `stop` ends it too."""
        containerd = PrivateContainerd(
            name,
            self.base_dir,
            cni_conf_dir=self.network.conf_dir,
            cni_bin_dir=self.network.bin_dir,
            registry_address=self.registry.address,
        )
        self.containerds[name] = containerd
        return containerd


def require() -> None:
    """Raise LabError if this machine lacks something that a lab needs.

    The message lists everything that is missing.
    """
    missing = list_missing()
    if missing:
        lines = "\n".join(f"  - {line}" for line in missing)
        raise LabError(f"this machine cannot run the daemons:\n{lines}\nscript/setup installs the packages")
