#!/usr/bin/env bash
# Kills assay's commands at random moments and makes their calls to the system fail; what they leave after that must be
# equal to the byte. See docs/reliability.md; --help lists the options.
set -euo pipefail
exec python3 "$(dirname "$0")/../tests/torture/torture.py" "$@"
