# Sourced by the other scripts: where things are, and words for people.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"
UNPACKED="$ROOT/.demo/packages"

# Programs that script/setup had to unpack instead of install are found here first.
if [ -d "$UNPACKED" ]; then
    export KUBELETX_TOOLS="$UNPACKED"
    export PATH="$UNPACKED/usr/sbin:$UNPACKED/usr/bin:$UNPACKED/sbin:$UNPACKED/bin:$PATH"
fi
export PATH="$PATH:/usr/sbin:/sbin"

say() { printf '%s\n' "==> $*" >&2; }

die() {
    printf '%s\n' "error: $*" >&2
    exit 1
}

# Run the calling script again as root, if it is not root already.
become_root() {
    [ "$(id -u)" -eq 0 ] && return
    command -v sudo >/dev/null || die "root is needed (daemons, mounts, network namespaces): run this as root or install sudo"
    exec sudo --preserve-env=CI,XDG_CACHE_HOME bash "$0" "$@"
}
