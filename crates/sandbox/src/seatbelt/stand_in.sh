#!/bin/sh
# Stands in for sandbox-exec: records its arguments, confines nothing, and answers the probe as
# the file beside it says.
mode=$(cat "$0.mode")
printf '%s\0' "$@" > "$0.call"
case $mode in
rejected)
    echo 'sandbox-exec: <input string>:7:2: unbound variable: file-fly' >&2
    exit 65
    ;;
nested)
    echo 'sandbox-exec: sandbox_apply: Operation not permitted' >&2
    exit 71
    ;;
esac
while [ "$1" != __probe ]; do shift; done
address=$2 inside=$3
shift 4
existing=$1 missing=$2
[ "$missing" != -- ] || { missing=$existing existing=; }
while [ "$1" != -- ]; do shift; done
write=yes canary=no connect=no proxy=yes protected=no
case $mode in
no-write) write=no ;;
no-write-in-project) case $inside in */sandboxes/*) ;; *) write=no ;; esac ;;
canary) canary=yes ;;
connect) connect=yes ;;
no-proxy) proxy=no ;;
outside) : > "$4" ;;
home) : > "$5" ;;
protected) [ ! -s "$existing" ] || protected=yes ;;
missing)
    : > "$missing"
    protected=yes
    ;;
silent) exit 0 ;;
esac
[ $write = no ] || : > "$inside"
printf 'write-project %s\nread-canary %s\nconnect %s\norder no\n' $write $canary $connect
echo "write-protected $protected"
case $address in *,*) echo "proxy $proxy" ;; esac
