#!/usr/bin/env bash
# Plants bugs in a copy of the tree (build-mutants), one at a time, and counts those that the tests notice. The work is
# done by tests/mutation/mutate.py, which has the options; docs/reliability.md says more.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
exec python3 -B "$here/tests/mutation/mutate.py" "$@"
