#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes tuning records for a GPU and its host's CPU in one go, with a program built earlier and no network:
#   tools/lab/tune_round.sh FOLDER OUT [PART...]
#   FOLDER  has normjit, built with -DNORMJIT_PORTABLE=ON (as tools/normjit/normjit under a build folder, or directly)
#   OUT     gets {cuda,cpu}_records.jsonl with their journals, results and logs
#   PART    check, cuda, cpu, confirm (default: all of these). Or cuda_regret and cpu_regret: the heuristic's regret
#           on random problems, and shares of the ceiling by size. REGRET_PROBLEMS (60), REGRET_BUDGET (480s, a
#           bound on the search), REGRET_SEED (today's date), CANDIDATES (60), CANDIDATE_SECONDS (0.01 on a GPU, 0.05
#           on a CPU); REGRET_SHAPES, a file of specs to search instead of random ones
# A round continues from the records in OUT, else from those in PREVIOUS, else from those in runtime/tuning/shipped.
# Records that the present heuristic and code generator would not change are not measured again; for the others, their
# old schedules are tried first. A round takes 8 minutes, of which CUDA_BUDGET (270s) and CPU_BUDGET (120s) set the
# shares.
# DEEPEN=24 continues the search for records with fewer candidates. Also SHAPES, DEVICE (cuda:0, or all), SHARD (1/1),
# CANDIDATES (48), and CPU_ELEMENTS, the most elements of a CPU problem (2^26).
# To ship the results: cp OUT/cpu_records.jsonl runtime/tuning/shipped/; OUT/points.txt goes to compiler/schedule/points.
set -u -o pipefail
folder=$1 out=$2
shift 2
parts=${*:-check cuda cpu confirm}
root=$(cd "$(dirname "$(realpath "$0")")/../.." && pwd)
normjit=$folder/normjit
[ -x "$normjit" ] && [ ! -d "$normjit" ] || normjit=$folder/tools/normjit/normjit
device=${DEVICE:-cuda:0}
first=${device/all/cuda:0}
shapes=${SHAPES:-$root/tools/lab/llm_shapes.txt}
mkdir -p "$out"
failures=0
export NORMJIT_RECORDS=off  # measures the heuristic, not the results of earlier rounds

report() { # what status
  if [ "$2" -eq 0 ]; then echo "ok      $1"; else echo "FAILED  $1"; failures=$((failures + 1)); fi
}

# Runs a command and prints the last lines of its output.
show() {
  "$@" >"$out/last.log" 2>&1
  local status=$?
  tail -n 12 "$out/last.log" | cut -c 1-300
  return $status
}

earlier() { # kind
  local file=$out/$1_records.jsonl previous=${PREVIOUS:-$root/runtime/tuning/shipped}
  if [ ! -e "$file" ] && [ -e "$previous/$1_records.jsonl" ]; then cp "$previous/$1_records.jsonl" "$file"; fi
  [ -e "$file" ] || : >"$file"
  chmod u+w "$file"
}

# Checks first that the device computes correctly, and that the tuner writes records that say so.
check() {
  local kind
  for kind in $(printf '%s\n' "$first" cpu | uniq); do
    show "$normjit" run "layernorm rows=4096 cols=4096 x=bf16 gamma=f32" --device "$kind" --check
    report "$kind: a checked launch" $?
    rm -f "$out/try.jsonl" "$out/try.jsonl.progress"
    show "$normjit" tune "rmsnorm rows=2048 cols=1024 x=bf16" -o "$out/try.jsonl" --device "$kind" --candidates 6
    [ "$(grep -c '"verified":"double"' "$out/try.jsonl")" -eq 1 ]
    report "$kind: a record of a small search" $?
  done
}

tune() { # kind device budget shapes [option...]
  earlier "$1"
  "$normjit" tune "$4" "${@:5}" -o "$out/$1_records.jsonl" --device "$2" --budget "$3" --shard "${SHARD:-1/1}" \
    --candidates "${CANDIDATES:-48}" --deepen "${DEEPEN:-0}" --json "$out/$1_tune.json" >"$out/$1_tune.txt" 2>"$out/$1_tune.log"
  report "$1: tune" $?
  cat "$out/$1_tune.log" | cut -c 1-300
  python3 "$root/tools/lab/regret.py" "$out/$1_records.jsonl" --list 5
}

cuda() { tune cuda "$device" "${CUDA_BUDGET:-270s}" "$shapes" --points "$out/points.txt"; }

# Prints the shapes that a CPU can measure in time.
cpu_shapes() {
  awk -v most="${CPU_ELEMENTS:-67108864}" '{
    line = $0; sub(/#.*/, "", line)
    if (match(line, /rows=[0-9]+/)) rows = substr(line, RSTART + 5, RLENGTH - 5); else next
    if (match(line, /cols=[0-9]+/)) cols = substr(line, RSTART + 5, RLENGTH - 5); else next
    if (rows * cols <= most) print line }' "$shapes" >"$out/cpu_shapes.txt"
}

cpu() {
  cpu_shapes
  tune cpu cpu "${CPU_BUDGET:-120s}" "$out/cpu_shapes.txt"
}

regret() { # kind device most_MiB candidate_seconds
  local shapes=$out/$1_regret.txt
  if [ -n "${REGRET_SHAPES:-}" ]; then
    cp "$REGRET_SHAPES" "$shapes"
  else
    python3 "$root/tools/lab/regret.py" --random "${REGRET_PROBLEMS:-60}" --most "$3" ${REGRET_SEED:+--seed "$REGRET_SEED"} >"$shapes"
  fi
  local begin=$SECONDS
  show "$normjit" tune "$shapes" -o "$out/$1_regret.jsonl" --device "$2" --budget "${REGRET_BUDGET:-480s}" \
    --candidates "${CANDIDATES:-60}" --seconds "${CANDIDATE_SECONDS:-$4}" --json "$out/$1_regret.json"
  report "$1: search of random problems, $((SECONDS - begin)) s" $?
  python3 "$root/tools/lab/regret.py" "$out/$1_regret.jsonl" --classes --why "$normjit" | tee "$out/$1_regret_table.txt"
}

cuda_regret() { regret cuda "$first" 2048 0.01; }

cpu_regret() { regret cpu cpu 256 0.05; }

# Measures the gains again, in separate processes: the schedules of the records and of the heuristic in turn, with cold
# data, as the tuner measured them (on a GPU data is never in L2).
confirm() {
  local kind where target run runs
  for kind in cuda cpu; do
    [ -s "$out/${kind}_records.jsonl" ] || continue
    where=$([ $kind = cpu ] && echo cpu || echo "$first")
    target=$("$normjit" info "rmsnorm rows=1 cols=1" --device "$where" --json |
      python3 -c 'import json, sys; print(json.load(sys.stdin)["target"])')
    python3 "$root/tools/lab/confirm.py" "$out/${kind}_records.jsonl" --pick 16 --target "$target" >"$out/${kind}_confirm.txt"
    [ -s "$out/${kind}_confirm.txt" ] || { echo "$kind: no tuned records of this device"; continue; }
    runs=()
    for run in 1 2 3; do
      runs+=("$out/${kind}_confirm.$run.json")
      NORMJIT_RECORDS="$out/${kind}_records.jsonl" show "$normjit" bench "$out/${kind}_confirm.txt" --device "$where" \
        --cold --against heuristic --seconds "${CONFIRM_SECONDS:-0.1}" --json "${runs[-1]}" >/dev/null
      report "$kind: bench of records against the heuristic, run $run" $?
    done
    python3 "$root/tools/lab/confirm.py" "$out/${kind}_records.jsonl" "${runs[@]}"
    report "$kind: no record is slower than the heuristic" $?
  done
}

"$normjit" info >"$out/info.txt" 2>&1
cat "$out/info.txt"
for part in $parts; do "$part"; done
echo "$failures failed"
[ "$failures" -eq 0 ]
