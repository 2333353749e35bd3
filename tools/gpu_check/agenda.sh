# The agenda of tools/gpu_check.sh: steps in the order in which they matter, within a budget of
# $total_seconds. A step begins only if what is left holds the time that it is expected to take; one
# that does not fit, or that the end of the budget stops, is left for another call. A later and
# shorter one may still fit.
# shellcheck shell=bash disable=SC2154  # variables of gpu_check.sh

ok=()
failed=()
left=()
not_here=()
rows=""          # of the steps, for results.json
left_seconds=0   # expected of all that is left
longest=0        # expected of the longest step that is left
expected=0       # in a dry run: of the steps so far
running=""       # process of the step that runs
earlier=()       # "NAME SECONDS GPU" of what is ok in the folder of --continue
names=()         # of all steps
chosen=no        # whether --only names one of them
without=""       # why this machine cannot do the steps that follow; empty: it can
of=""            # names of steps whose output the next step reads, as a regular expression

# left_now: seconds of the budget that are left.
left_now() {
  if [[ $dry == yes ]]; then echo $((total_seconds - expected)); else echo $((total_seconds - SECONDS)); fi
}

# to_do NAME...: whether this call has one of these steps to do.
to_do() {
  local name
  for name; do
    if ((interrupted == 0)) && [[ $name =~ ^($only)$ ]] && ! ok_earlier "$name"; then return 0; fi
  done
  return 1
}
# ok_earlier NAME: whether a step is ok in the folder of --continue; its seconds and GPU are then in $earlier_row.
ok_earlier() {
  for earlier_row in ${earlier[@]+"${earlier[@]}"}; do
    if [[ ${earlier_row%% *} == "$1" ]]; then return 0; fi
  done
  return 1
}

# begin_section TITLE: said before the first step of a section.
title=""
begin_section() { title=$1; }
say_section() {
  if [[ -n $title ]]; then printf '%s\n' "-- $title"; fi
  title=""
}

# note_earlier NAME: the row of a step that ok_earlier has found.
note_earlier() {
  local seconds=${earlier_row#* }
  note "$1" 0 "${seconds%% *}" "${earlier_row#* * }"
}
# note NAME STATUS SECONDS [GPU]: a row of results.json. The status is the exit status or "left".
note() {
  rows+="${rows:+,
  }{\"name\": \"${1%.json}\", \"status\": \"$2\", \"seconds\": $3, \"gpu\": \"${4:-${gpu%%,*}}\"}"
}

leave() {
  local name=$1 about=$2
  left+=("${name%.json}")
  left_seconds=$((left_seconds + about))
  if ((about > longest)); then longest=$about; fi
}

# gather_shards LOG STATUS: puts the output of the shards before the step's own in LOG. The step
# cannot do this itself: at its time limit it is killed with its processes.
gather_shards() {
  local log=$1 status=$2
  mv "$log" "$SHARDS.own"
  cat "$SHARDS"/* "$SHARDS.own" >"$log" 2>/dev/null
  if [[ $status == 124 || $status == 137 ]]; then
    printf 'stopped at the time limit: %d cases ok, %d failed so far\n' "$(grep -c '^ok ' "$log")" "$(grep -c '^FAIL ' "$log")" >>"$log"
  fi
  rm -rf "$SHARDS" "$SHARDS.own"
}

# run_step LIMIT LOG FILE COMMAND...: its status. In the background, so that a signal is answered
# while it runs.
run_step() {
  local limit=$1 log=$2 file=$3 status=0
  shift 3
  if [[ $file == "$log" ]]; then
    timeout -k 5 "$limit" "$@" >"$log" 2>&1 &
  else
    timeout -k 5 "$limit" "$@" >"$file" 2>"$log" &
  fi
  running=$!
  wait "$running" || status=$?
  if ((interrupted > 0)); then wait "$running"; fi  # the first one ended by the signal
  running=""
  return $status
}

# why_not_here LOG: its error, without the hint, or else its last line.
why_not_here() {
  local why
  why=$(sed -n 's/^error: //p' "$1" | tail -1)
  printf '%s\n' "${why:-$(tail -1 "$1")}"
}

# step NAME ABOUT LIMIT COMMAND...: a step that is expected to take ABOUT seconds and may take LIMIT.
# Output goes to logs/NAME.log; if NAME ends in .json, stdout goes to logs/NAME. Status 77 says that
# this machine has nothing of it to do. COMMAND finds the seconds that it really has in $step_seconds.
step() {
  local name=$1 about=$2 limit=$3
  shift 3
  local short=${name%.json}
  names+=("$short")
  if ! [[ $short =~ ^($only)$ ]]; then
    if ok_earlier "$short"; then note_earlier "$short"; fi
    return
  fi
  if [[ $chosen == no && $dry == no ]]; then prepare_out; fi
  chosen=yes
  say_section
  if ok_earlier "$short"; then
    ok+=("$short")
    note_earlier "$short"
    printf '       %-36s ok in %s\n' "$short" "$continued"
    return
  fi
  local room begin=$SECONDS status=0
  room=$(left_now)
  if [[ -n $without ]]; then
    not_here+=("$short")
    printf '       %-36s not here: %s\n' "$short" "$without"
    return
  fi
  local why=""
  if ((about > room)); then why="about $about s, $((room > 0 ? room : 0)) s remain"; fi
  if [[ -n ${of:-} && " ${left[*]} " =~ \ ($of)\  ]]; then why="of ${BASH_REMATCH[1]}, which is left"; fi
  if [[ -n $why ]]; then
    leave "$short" "$about"
    if [[ $dry == no ]]; then note "$short" left 0; fi
    printf '       %-36s left: %s\n' "$short" "$why"
    return
  fi
  if [[ $dry == yes ]]; then
    printf '%4d s  %-36s about %d s, at most %d s: %s\n' "$expected" "$name" "$about" "$limit" "$*"
    expected=$((expected + about))
    return
  fi
  local log="$logs/$short.log" file="$logs/$name"
  [[ $name == *.json ]] || file=$log
  rm -f "$log" "$file" "$logs/$short.json"  # in_turn.py adds to the last of them
  if [[ -n ${SHARDS:-} ]]; then mkdir -p "$SHARDS"; fi
  export step_seconds=$((limit < room ? limit : room))
  run_step "$step_seconds" "$log" "$file" "$@" || status=$?
  if [[ -n ${SHARDS:-} ]]; then gather_shards "$log" "$status"; fi
  local word=ok
  if ((interrupted > 0)) || [[ ($status == 124 || $status == 137) && $room -lt $limit ]]; then
    status=left
    word="left: stopped at the end of the time"
    leave "$short" "$limit"
  elif [[ $status == 0 ]]; then
    ok+=("$short")
  elif [[ $status == 77 ]]; then
    not_here+=("$short")
    printf '%4d s  %-36s not here: %s\n' $((SECONDS - begin)) "$short" "$(why_not_here "$log")"
    return
  else
    word="FAILED ($status)"
    failed+=("$short")
  fi
  note "$short" "$status" $((SECONDS - begin))
  printf '%4d s  %-36s %s\n' $((SECONDS - begin)) "$short" "$word"
  if [[ $word == FAILED* && -s $log ]]; then tail -5 "$log" | sed 's/^/          /'; fi
}

# check NAME ABOUT LIMIT COMMAND...: a step of an op check, in several processes.
check() {
  local name=$1 about=$2 limit=$3
  shift 3
  SHARDS=$logs/$name.shards step "$name" "$about" "$limit" bash -c 'sharded "$@"' _ "$@"
}

# read_earlier FOLDER: which steps are ok there, with their seconds and GPU.
read_earlier() {
  local folder=$1 row name seconds on
  while read -r row; do
    name=$(field name "$row")
    seconds=$(field seconds "$row")
    on=$(field gpu "$row")
    earlier+=("$name $seconds ${on:-$continued_gpu}")
  done < <(grep -o '{"name": "[^"]*", "status": "0"[^}]*}' "$folder/results.json")
}
# field NAME ROW: a field of a row as note() writes it.
field() { sed -n 's/.*"'"$1"'": "\{0,1\}\([^",}]*\).*/\1/p' <<<"$2" | head -1; }

# say_rest: what is left, and the call that does it. $again holds the options that it repeats.
say_rest() {
  if [[ ${#left[@]} -eq 0 ]]; then return; fi
  local names minutes=$(((longest + 65) / 60))
  names=$(IFS='|'; echo "${left[*]}")
  if ((minutes * 60 < total_seconds)); then minutes=$minutes_given; fi
  printf 'gpu_check: left for want of time, about %d s: %s\n' "$left_seconds" "${left[*]}"
  if [[ $dry == no ]]; then
    printf 'gpu_check: the rest: bash tools/gpu_check.sh%s --minutes %s --continue %s\n' "$again" "$minutes" "$out"
    printf "gpu_check: or by itself: --continue %s --only '%s'\n" "$out" "$names"
  else
    printf "gpu_check: another call does them: --minutes %s --only '%s'\n" "$minutes" "$names"
  fi
}
