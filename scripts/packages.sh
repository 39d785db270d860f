# Sourced by other scripts: installs missing programs (Debian, Ubuntu) if it has the rights, and reports
# them otherwise. The sourcing script sets `name`.

say() { printf '%s: %s\n' "$name" "$*" >&2; }
die() { say "$@"; exit 1; }

# Prints the output of a command only if it fails.
quietly() {
    local output
    output=$("$@" 2>&1) || { printf '%s\n' "$output" >&2; return 1; }
}

install_packages() {
    local as_root=()
    command -v apt-get >/dev/null || die "please install: $* (there is no apt-get to do it with)"
    if [[ $EUID -ne 0 ]]; then
        sudo -n true 2>/dev/null || die "please install first: sudo apt-get install $*"
        as_root=(sudo -n)
    fi
    say "installing $*"
    quietly "${as_root[@]}" apt-get update -qq || die "could not update the list of packages"
    quietly "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq --no-install-recommends "$@" || die "could not install: $*"
}

# need PROGRAM PACKAGE…
missing=()
need() {
    local program=$1
    shift
    command -v "$program" >/dev/null || missing+=("$@")
}

install_missing() {
    [[ ${#missing[@]} -eq 0 ]] || install_packages "${missing[@]}"
    command -v cargo >/dev/null || die "there is no cargo; https://rustup.rs says how to get it"
}
