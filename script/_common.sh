# Sourced by the other scripts: where things are, and words for people.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="${KUBELETX_VENV:-$ROOT/.venv}"
UNPACKED="$ROOT/.demo/packages"

# Programs that script/setup had to unpack instead of install are found here first.
if [ -d "$UNPACKED" ]; then
    export KUBELETX_TOOLS="$UNPACKED"
    export PATH="$UNPACKED/usr/sbin:$UNPACKED/usr/bin:$UNPACKED/sbin:$UNPACKED/bin:$PATH"
fi
export PATH="$PATH:/usr/sbin:/sbin"

# Containers often set this variable. Without bytecode each start of an agent compiles all its modules, which doubles its
# CPU time, and each test process rewrites the assertions of all tests.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "==> $*" >&2; }

die() {
    printf '%s\n' "error: $*" >&2
    exit 1
}

# Run a program that cannot ask: its standard input is empty, and its session has no terminal. Ctrl-C interrupts the
# program and ends the script when that has ended; apt-get first completes what dpkg has begun.
unattended() {
    local pid= status=0
    interrupted=
    trap 'interrupted=true; [ -z "$pid" ] || kill -INT "$pid" 2>/dev/null || true' INT TERM
    setsid env --default-signal=INT "$@" </dev/null &
    pid=$!
    [ -z "$interrupted" ] || kill -INT "$pid" 2>/dev/null || true # the interrupt came before the ID was known
    while kill -0 "$pid" 2>/dev/null; do
        status=0
        wait "$pid" || status=$?
    done
    trap - INT TERM
    kill -- "-$pid" 2>/dev/null || true # children that an interrupted program has left
    [ -z "$interrupted" ] || exit 130
    return "$status"
}

# Run the calling script again as root, if it is not root already.
become_root() {
    [ "$(id -u)" -eq 0 ] && return
    command -v sudo >/dev/null || die "root is needed (daemons, mounts, network namespaces): run this as root or install sudo"
    exec sudo --preserve-env=CI,XDG_CACHE_HOME bash "$0" "$@"
}
