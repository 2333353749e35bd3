#!/usr/bin/env bash
# Kills assay's commands at random moments and makes their calls to the system fail; what they leave after that must be
# equal to the byte. See docs/reliability.md; --help lists the options.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 tests/torture/torture.py "$@"
