# Checks slugify.sh: a title, and what must become of it.
failed=0
check() {
    got=$(sh slugify.sh "$1")
    if [ "$got" = "$2" ]; then
        echo "ok   '$1'"
    else
        echo "FAIL '$1': expected '$2', got '$got'"
        failed=1
    fi
}

check 'hello' 'hello'
check 'Hello World' 'hello-world'
check '  Rock & Roll!  ' 'rock-roll'
check 'Top 10 (2026)' 'top-10-2026'
exit $failed
