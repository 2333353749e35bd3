#!/usr/bin/env bash
# Every fault that test_nccl_group lists, three at a time: they mostly wait. usage: nccl_faults.sh PROGRAM
set -euo pipefail
names=$("$1" --list)
if [[ -z $names ]]; then
  echo "FAILED: $1 --list names no fault"
  exit 1
fi
xargs -P 3 -I{} bash "$(dirname "$0")/run_ranks.sh" 3 "$1" --fault {} <<<"$names"
