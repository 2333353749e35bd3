#!/usr/bin/env bash
# Passes if a command prints this text, an extended regular expression, and ends with an exit code above 0. ctest's
# PASS_REGULAR_EXPRESSION looks at no exit code. usage: fails_with.sh TEXT COMMAND [ARGUMENTS]
set -euo pipefail
text=$1
shift
code=0
output=$("$@" 2>&1) || code=$?
printf '%s\n' "$output"
if [[ $code == 0 ]]; then
  echo "FAILED: exit code 0"
  exit 1
fi
if ! grep -qE -- "$text" <<<"$output"; then
  echo "FAILED: exit code $code, and no line with: $text"
  exit 1
fi
