#!/bin/sh
# Hands a hook's question to ralph. Without ralph there is nobody to answer it, which is no reason to
# disturb anyone's work: a word on standard error, where `claude --debug` shows it.
if ! command -v ralph >/dev/null 2>&1; then
    echo "ralph plugin: the program ralph is not on the PATH, so its hooks do nothing" >&2
    exit 0
fi
exec ralph hook "$@"
