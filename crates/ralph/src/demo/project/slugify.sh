# Turns a title into the name of its page, which is part of a web address:
#
#     $ sh slugify.sh "Hello World"
#     hello-world
printf '%s\n' "$1" | tr ' ' '-'
