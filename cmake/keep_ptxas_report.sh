#!/usr/bin/env bash
# keep_ptxas_report.sh COMMAND...: runs a compilation by nvcc -Xptxas -v. What it prints goes to OBJECT.ptxas; of it the
# terminal gets all but the report of registers.
set -uo pipefail
object=""
for ((i = 1; i < $#; ++i)); do
  if [[ ${!i} == -o ]]; then next=$((i + 1)) && object=${!next}; fi
done
[[ $object == *.o ]] || exec "$@"
"$@" >"$object.ptxas" 2>&1
status=$?
grep -vE "^ptxas info|^ +[0-9]+ bytes stack frame|^$" "$object.ptxas" >&2
exit $status
