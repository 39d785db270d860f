#!/usr/bin/env bash
# Runs a loop over a task list: `ralph work`, by the flags of a script.
set -euo pipefail

usage() {
    cat <<'USAGE'
Usage: ralph.sh [OPTIONS]
  -n, --max-iterations N    Max loop iterations (default: 10)
  --ralph-dir PATH          Path to ralph/ directory (default: ./ralph)
  -d, --project-dir PATH    Project root (default: cwd)
  -m, --model MODEL         Claude model to use (e.g., opus, sonnet)
  --sandbox                 Force a sandbox (error if unavailable)
  --no-sandbox              Force direct mode with the PreToolUse hook blocklist
  -h, --help                Show usage
USAGE
}

die() {
    echo "ralph.sh: $1" >&2
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
        -n | --max-iterations | --ralph-dir | -d | --project-dir | -m | --model)
            [[ $# -ge 2 ]] || die "$1 needs a value"
            # With ralph itself, -m is a number of iterations.
            case $1 in
                -n | --max-iterations) args+=(--max-iterations "$2") ;;
                -d | --project-dir) args+=(--project-dir "$2") ;;
                -m | --model) args+=(--model "$2") ;;
                --ralph-dir) args+=(--ralph-dir "$2") ;;
            esac
            shift 2
            ;;
        --sandbox | --no-sandbox)
            args+=("$1")
            shift
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *) die "unknown option: $1" ;;
    esac
done

command -v ralph >/dev/null || {
    echo "ralph.sh: the program ralph is not on the PATH; install it first" >&2
    exit 127
}
exec ralph work ${args[@]+"${args[@]}"}
