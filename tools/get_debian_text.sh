#!/usr/bin/env bash
# Makes 143 MB of English text out of Debian packages: documentation, books, dictionaries,
# texts of games. The work is done by debian_text/main.py, which has the options.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

fail() { printf 'error: %s\nhint: %s\n' "$1" "$2" >&2; exit 1; }

# Another Python may come first in PATH, without the libraries that Debian installs for its own.
found=""
for python in python3 /usr/bin/python3; do
  command -v "$python" >/dev/null || continue
  found=$python
  if "$python" -c 'import lxml.etree' 2>/dev/null; then exec "$python" -B "$here/debian_text/main.py" "$@"; fi
done
[[ -n $found ]] || fail "python3 is not installed" "apt-get install python3 python3-lxml"
for argument in "$@"; do  # the help needs no library
  case $argument in -h | --help) exec "$found" -B "$here/debian_text/main.py" --help ;; esac
done
fail "$found has no module lxml.etree, which reads HTML and XML" "apt-get install python3-lxml"
