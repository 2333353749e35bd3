# results.json of tools/gpu_check.sh: all that the steps have left in $logs.
# shellcheck shell=bash disable=SC2154  # variables of gpu_check.sh

# value FILE: a bench's JSON if it is complete, else null.
value() {
  if [[ -s $1 && $(tail -c 3 "$1") == *[\]\}]* ]]; then cat "$1"; else echo null; fi
}
last_line() { tail -1 "$logs/$1.log" 2>/dev/null | tr -d '"\\'; }
# values NAME...: the JSON of each step that has all of it, as fields of an object.
values() {
  local separator="" name json
  for name; do
    json=$(value "$logs/$name.json")
    if [[ $json == null ]]; then continue; fi
    printf '%s\n"%s": %s' "$separator" "$name" "$json"
    separator=","
  done
}
# lines FILE...: the lines of JSON of files that have one a line, as entries of a list.
lines() { cat "$@" 2>/dev/null | { grep '^{' || true; } | paste -sd,; }
# Quotes a list of names.
quoted() {
  local separator="" name
  for name; do printf '%s"%s"' "$separator" "$name"; separator=", "; done
}

# results_text: the text of results.json.
results_text() {
  local name
  printf '{"gpu": "%s", "date": "%s", "commit": "%s", "toolkit": "%s",\n' "$gpu" "$(date -u +%FT%TZ)" \
    "$commit" "$(nvcc --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p')"
  printf '"seconds": %d, "minutes": %s, "left": [%s], "not_here": [%s],\n"steps": [%s],\n"limits": ' "$SECONDS" "$minutes_given" \
    "$(quoted ${left[@]+"${left[@]}"})" "$(quoted ${not_here[@]+"${not_here[@]}"})" "$rows"
  value "$logs/limits.json"
  # shellcheck disable=SC2086  # lists of names
  printf ',\n"benches": {%s},\n"steps_of_models": {%s},\n"losses_decoded_native": ' "$(values $benches)" "$(values $measured)"
  value "$logs/losses.json"
  printf ',\n"in_turn": ['
  lines "$logs"/ab_*.json
  printf ']'
  for name in $last_lines; do printf ',\n"%s": "%s"' "$name" "$(last_line "$name")"; done
  printf ',\n"torch": ['
  lines "$logs/torch.json"
  printf '],\n"torch_steps": ['
  lines "$logs"/torch_step_*.json
  printf ']}\n'
}
# write_results: 0 if results.json and logs.tgz are whole; else those of an earlier call stay, and so do the logs.
write_results() {
  local text
  text=$(results_text)
  printf '%s\n' "$text" >"$out/results.json.part" && tar -czf "$out/logs.tgz.part" -C "$unfinished" logs &&
    mv -fT "$out/results.json.part" "$out/results.json" && mv -fT "$out/logs.tgz.part" "$out/logs.tgz" && rm -r "$unfinished" && return
  rm -f "$out/results.json.part" "$out/logs.tgz.part"
  return 1
}
