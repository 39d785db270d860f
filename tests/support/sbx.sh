#!/bin/sh
# shellcheck disable=SC2163 # What it exports is NAME=VALUE.
here=$(dirname "$0")
[ "$1" = sandbox ] && shift
for word in "$@"; do printf '<%s>' "$word" | tr '\n' ' '; done >> "$here/calls"; echo >> "$here/calls"
case $1 in
version) ;;
ls) if [ -e "$here/made" ]; then printf '[{"name": "%s"}]\n' "$(cat "$here/made")"; else echo '[]'; fi ;;
create) echo "$3" > "$here/made" ;;
rm) rm -f "$here/made" ;;
stop | policy) ;;
run) cat > /dev/null; echo '<response>DONE</response>' ;;
exec)
    case "$*" in
    *" probe "*) while [ $# -gt 2 ]; do shift; done; touch "$1"; printf 'write-project yes\nread-canary no\nconnect no\norder no\nwrite-protected no\n' ;;
    *setup.sh*) ;;
    *" cat -- "*) while [ $# -gt 1 ]; do shift; done; cat -- "$1" ;;
    *) shift 2; cd "$2" || exit; shift 2; while [ "$1" = -e ]; do export "$2"; shift 2; done; shift; exec "$@" ;;
    esac ;;
esac
