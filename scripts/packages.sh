# shellcheck shell=bash
# Sourced by other scripts: installs missing programs (Debian, Ubuntu) if it has the rights, and says
# how to install them otherwise. The sourcing script sets `name`.

say() { printf '%s: %s\n' "${name:?}" "$*" >&2; }
die() { say "$@"; exit 1; }

# Prints the output of a command only if it fails.
quietly() {
    local output
    output=$("$@" 2>&1) || { printf '%s\n' "$output" >&2; return 1; }
}

# Prints the command that installs packages here.
install_command() {
    if [[ $(uname) == Darwin ]]; then
        echo brew install
    elif command -v apt-get >/dev/null; then
        echo apt-get install
    elif command -v dnf >/dev/null; then
        echo dnf install
    elif command -v pacman >/dev/null; then
        echo pacman -S
    elif command -v apk >/dev/null; then
        echo apk add
    elif command -v zypper >/dev/null; then
        echo zypper install
    fi
}

# Prints the packages of a program. On glibc, ralph is linked statically.
packages_of() {
    case $1:$2 in
    apt-get:cc) echo gcc libc6-dev ;;
    apt-get:c++ | apk:c++) echo g++ ;;
    dnf:cc) echo gcc glibc-static ;;
    dnf:c++ | zypper:c++) echo gcc-c++ ;;
    apk:cc) echo gcc musl-dev ;;
    zypper:cc) echo gcc glibc-devel-static ;;
    *:cc | *:c++) echo gcc ;;
    *:bwrap) echo bubblewrap ;;
    *) echo "$2" ;;
    esac
}

missing=()
need() {
    command -v "$1" >/dev/null || missing+=("$1")
}

install_missing() {
    local with program packages=()
    with=$(install_command)
    for program in ${missing[@]+"${missing[@]}"}; do
        case $(uname):$program in
        Darwin:cc | Darwin:c++) die "please install a compiler first: xcode-select --install" ;;
        esac
        # shellcheck disable=SC2207 # Names of packages have no spaces.
        packages+=($(packages_of "${with%% *}" "$program"))
    done
    [[ ${#packages[@]} -eq 0 ]] || install_packages "$with" "${packages[@]}"
    command -v cargo >/dev/null || die "there is no cargo; https://rustup.rs says how to get it"
}

# install_packages COMMAND PACKAGE…
install_packages() {
    local with=$1 sudo=
    shift
    case $with in
    '') die "please install first: $*" ;;
    brew*) die "please install first: $with $* (https://brew.sh)" ;;
    esac
    [[ $EUID -eq 0 ]] || sudo=sudo
    if [[ $with != apt-get* ]] || ! $sudo ${sudo:+-n} true 2>/dev/null; then
        die "please install first: ${sudo:+sudo }$with $*"
    fi
    say "installing $*"
    quietly $sudo apt-get update -qq || die "could not update the list of packages"
    quietly $sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get install -qq --no-install-recommends "$@" || die "could not install: $*"
}
