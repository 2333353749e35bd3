# What the scripts that download public files share: errors, downloads that resume, hashes. Sourced, not run.
export LC_ALL=C  # numbers have a decimal point, curl and find speak English

fail() {
  printf 'error: %s\nhint: %s\n' "$1" "$2" >&2
  exit 1
}

need() {
  local tool
  for tool; do
    command -v "$tool" >/dev/null || fail "$tool is not installed" "apt-get install curl ca-certificates python3"
  done
}

# make_folder DIR: the folder of the files, which no second download may use meanwhile.
make_folder() {
  mkdir -p "$1" || fail "cannot create the folder $1" "choose another folder with -o DIR"
  exec {folder_lock}<"$1"
  local status=0
  flock --nonblock "$folder_lock" || status=$?
  ((status != 1)) || fail "another download into $1 is still running" "wait until it ends, or end its curl"
}

bytes_of() { stat --format %s "$1" 2>/dev/null || echo 0; }

sha256_of() { sha256sum <"$1" | cut -c 1-64; }

grouped() { sed -e ':more' -e 's/\B[0-9]\{3\}\>/,&/' -e 'tmore' <<<"$1"; }

size_text() {
  awk -v n="$1" 'BEGIN {
    if (n >= 1e9) printf "%.2f GB", n / 1e9
    else if (n >= 1e6) printf "%.1f MB", n / 1e6
    else printf "%.1f kB", n / 1e3
  }'
}

# free_bytes DIR: of the file system that holds DIR, or would.
free_bytes() {
  local at=$1
  while [[ ! -e $at ]]; do at=$(dirname "$at"); done
  df --block-size=1 --output=avail "$at" | tail -1 | tr -d ' '
}

# look_up URL: sets remote_bytes, and remote_sha256 if the server names the hash of a large file; "" where it says
# nothing. Servers that redirect to a storage name the hash in the first answer.
look_up() {
  local answer
  answer=$(curl --silent --head --location --connect-timeout 30 --max-time 60 --write-out 'status: %{http_code}\n' \
    "$1" | tr -d '\r') || true
  remote_sha256=$(sed -nE 's|^x-linked-etag: *(W/)?"?([0-9a-f]{64})"? *$|\2|Ip' <<<"$answer" | sed -n '1p' | tr A-F a-f)
  remote_bytes=$(awk -F ': *' '
    /^HTTP\// { bytes = "" }
    tolower($1) == "content-length" { bytes = $2 }
    tolower($1) == "x-linked-size" { linked = $2 }
    $1 == "status" && $2 != 200 && $2 != "000" { bytes = "" }
    END { print linked != "" ? linked : bytes }' <<<"$answer")
}

# Of all files of a script together, for the progress; a script with one file leaves them.
job_bytes=0  # of all its files; 0 = unknown
job_had=0    # before it began
job_done=0   # of finished files, those that were there among them
job_began=$SECONDS

# progress BYTES: of the job, with BYTES of the current file: "2.60 GB of 10.20 GB, 25%, 85.0 MB/s, 0:01:29 left".
progress() {
  local now=$((job_done + $1)) seconds=$((SECONDS - job_began)) all=$job_bytes text left
  ((all > 0)) || all=${remote_bytes:-0}
  text=$(size_text "$now")
  if ((all >= now && all > 0)); then text+=" of $(size_text "$all"), $((100 * now / all))%"; fi
  if ((seconds > 0 && now > job_had)); then
    text+=", $(size_text $(((now - job_had) / seconds)))/s"
    if ((all > now)); then
      left=$(((all - now) * seconds / (now - job_had)))
      text+=$(printf ', %d:%02d:%02d left' $((left / 3600)) $((left / 60 % 60)) $((left % 60)))
    fi
  fi
  echo "$text"
}

transfer_log=$(mktemp)
transfer_pid=""
trap 'if [[ -n $transfer_pid ]]; then kill "$transfer_pid" 2>/dev/null || true; fi; rm -f "$transfer_log"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# transfer URL PART: one connection; returns what curl returns, transfer_said is its message.
transfer() {
  local status=0
  curl --fail --location --connect-timeout 30 --speed-limit 1 --speed-time 60 --continue-at - --silent --show-error \
    --output "$2" "$1" 2>"$transfer_log" &
  transfer_pid=$!
  if [[ -t 2 ]]; then
    while kill -0 "$transfer_pid" 2>/dev/null; do
      printf '\r\033[K%s' "$(progress "$(bytes_of "$2")")" >&2
      sleep 0.3
    done
    printf '\r\033[K' >&2
  fi
  wait "$transfer_pid" || status=$?
  transfer_pid=""
  transfer_said=$(sed -nE 's/^curl: \([0-9]+\) //p' "$transfer_log" | tail -1)
  return "$status"
}

# fetch URL PART: downloads to PART, from where an earlier download stopped. Returns 1 when the server has no such file.
# Any other failure ends the script, and PART keeps what has come.
fetch() {
  local url=$1 part=$2 status before tries=0
  local again="run the same command again: it resumes where it stopped"
  look_up "$url"
  before=$(bytes_of "$part")
  if [[ -n $remote_bytes ]] && ((before > 0 && before == remote_bytes)); then return 0; fi
  if [[ -n $remote_bytes ]] && ((before > remote_bytes)); then rm -f "$part"; fi
  while ((tries <= 5)); do
    before=$(bytes_of "$part") status=0
    transfer "$url" "$part" || status=$?
    case $status:${transfer_said##* } in
      0:*) return 0 ;;
      22:404 | 22:410 | 37:*) return 1 ;;
      # The server does not resume, or PART is longer than its file.
      22:416 | 33:* | 36:*) rm -f "$part"; tries=$((tries + 1)) ;;
      22:408 | 22:429 | 22:5?? | 16:* | 18:* | 28:* | 35:* | 52:* | 55:* | 56:* | 92:*)
        if (($(bytes_of "$part") > before)); then
          tries=0
        else
          tries=$((tries + 1))
          sleep 2
        fi ;;
      23:*)
        fail "cannot write $part: $transfer_said; $(size_text "$(free_bytes "$(dirname "$part")")") are free there" \
          "free some space; then $again" ;;
      *) break ;;
    esac
  done
  fail "the download of $url failed: $transfer_said (curl's exit code $status)" "$again"
}

# keep PART FILE: gives a checked file its name, once its bytes are on the disk.
keep() {
  sync "$1" && mv "$1" "$2" || fail "cannot write $2" "check its folder and the free space: df -h $(dirname "$2")"
}

# fetch_pinned URL FILE SHA256: a FILE whose bytes are known. Returns 1 when the server has no such file.
fetch_pinned() {
  local url=$1 file=$2 want=$3 found
  fetch "$url" "$file.part" || return 1
  found=$(sha256_of "$file.part")
  if [[ $found != "$want" ]]; then
    rm -f "$file.part"
    fail "$url has SHA-256 $found, wanted $want" \
      "run the same command again, or check the address; the file was not kept"
  fi
  keep "$file.part" "$file"
}

# have_pinned FILE SHA256: true if FILE is there. One with other bytes is an error.
have_pinned() {
  [[ -f $1 ]] || return 1
  local found
  found=$(sha256_of "$1")
  [[ $found == "$2" ]] || fail "$1 has SHA-256 $found, wanted $2" "move it away and run the same command again"
  echo "$1: already there"
}
