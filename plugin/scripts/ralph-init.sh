#!/usr/bin/env bash
# Puts the documents of a loop into a project: `ralph new`, by the flags of a script.
set -euo pipefail

usage() {
    echo 'Usage: ralph-init.sh [--project-dir PATH] [--name FEATURE_NAME]'
}

die() {
    echo "ralph-init.sh: $1" >&2
    usage >&2
    exit 2
}

args=()
while [[ $# -gt 0 ]]; do
    # A value after an equals sign is a word of its own from here on.
    if [[ $1 == --*=* ]]; then
        set -- "${1%%=*}" "${1#*=}" "${@:2}"
    fi
    case $1 in
        --project-dir | --name)
            [[ $# -ge 2 ]] || die "$1 needs a value"
            args+=("$1" "$2")
            shift 2
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *) die "unknown option: $1" ;;
    esac
done

command -v ralph >/dev/null || {
    echo "ralph-init.sh: the program ralph is not on the PATH; install it first" >&2
    exit 127
}
exec ralph new ${args[@]+"${args[@]}"}
