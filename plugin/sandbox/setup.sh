#!/usr/bin/env bash
# Sets a Docker sandbox up for loops, once, after it was created. It runs inside of it, as root:
#
#   docker sandbox exec -u root NAME bash -s -- STATE_DIR [RALPH] <setup.sh
#
# STATE_DIR is a directory of the host, mounted at the same path: the agent's login lives there, so that it
# outlasts the sandbox without the host's own ~/.claude being shared. RALPH is a ralph for Linux, mounted
# too; the plugin's hooks call it. It may be run again.
set -euo pipefail

state=${1:?usage: setup.sh STATE_DIR [RALPH]}
ralph=${2:-}
user=${SANDBOX_USER:-agent}
home=${SANDBOX_HOME:-$(getent passwd "$user" | cut -d: -f6)}
[[ -n $home ]] || {
    echo "setup.sh: there is no user $user in this sandbox" >&2
    exit 1
}

mkdir -p "$state/.claude"
# An empty file is no JSON, and claude would not start.
[[ -s $state/.claude.json ]] || echo '{}' >"$state/.claude.json"
for name in .claude .claude.json; do
    [[ $(readlink "$home/$name" || true) == "$state/$name" ]] || {
        rm -rf "${home:?}/$name"
        ln -s "$state/$name" "$home/$name"
    }
    chown -h "$user:" "$home/$name"
done

# Commits need an author; one that is there stays.
config=$home/.gitconfig
git config --file "$config" user.email >/dev/null || git config --file "$config" user.email ralph@localhost
git config --file "$config" user.name >/dev/null || git config --file "$config" user.name 'Ralph Loop'
chown "$user:" "$config"

if [[ -n $ralph ]]; then
    install -m 755 "$ralph" "${SANDBOX_BIN:-/usr/local/bin}/ralph"
fi
