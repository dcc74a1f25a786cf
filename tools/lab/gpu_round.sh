#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs everything that needs a GPU in one go, with programs built earlier: tools/lab/gpu_round.sh FOLDER OUT [PART...]
#   FOLDER  normjit, normjit_runtime_tests, normjit_property_tests and, for `stress`, normjit_gpu_stress_tests, built with
#           -DNORMJIT_PORTABLE=ON
#   OUT     gets logs and JSON
#   PART    tests, random, sanitizer, bench, peers (default: all of these); stress: threads, streams, two GPUs if the
#           machine has two, failures, and 10,000 random problems; torch: the tests of formulas and norms in PyTorch,
#           which need normjit and pytest in PYTHONPATH
# Variables for random: ROUNDS, the draws per test (25: some 8 minutes, a kernel is compiled in a third of a second),
# PROCESSES, how many run at a time (14), SEED, the seed of the first (1), FILTER, a pattern of the tests,
# RANDOM_SECONDS, after which a process is stopped and the script says so. For sanitizer: CASES, a pattern of cases. For
# bench: SHAPES to measure, SECONDS for each.
set -u -o pipefail
folder=$1 out=$2
shift 2
parts=${*:-tests random sanitizer bench peers}
root=$(cd "$(dirname "$(realpath "$0")")/../.." && pwd)
device=${NORMJIT_TEST_DEVICE:-cuda:0}
export NORMJIT_TEST_DEVICE=$device
mkdir -p "$out"
failures=0

report() { # what status
  if [ "$2" -eq 0 ]; then echo "ok      $1"; else echo "FAILED  $1"; failures=$((failures + 1)); fi
}

tests() {
  "$folder/normjit_runtime_tests" -sfe='*store_test*' >"$out/runtime.log" 2>&1
  report "runtime tests" $?
  "$folder/normjit_runtime_tests" -sf='*store_test*' >>"$out/runtime.log" 2>&1  # in a process that never opened NVRTC
  report "runtime tests of the store" $?
  grep -E "ERROR|skipped|test cases:" "$out/runtime.log"
  local spec
  for spec in "layernorm rows=4096 cols=4096 x=bf16 gamma=f32" "qk_norm_rope slices=16 rows=16384 cols=128 x=bf16 gamma=bf16" \
    "rmsnorm_blocks pass=forward rows=8192 cols=4096 x=bf16 gamma=bf16 y=e4m3"; do
    "$folder/normjit" run "$spec" --device "$device" --check
    report "run --check" $?
  done
}

random() {
  local seed=${SEED:-1} processes=${PROCESSES:-14} i pids=()
  for ((i = 0; i < processes; ++i)); do
    NORMJIT_TEST_SEED=$((seed + i)) NORMJIT_TEST_ROUNDS=${ROUNDS:-25} \
      timeout -k 5 "${RANDOM_SECONDS:-3600}" "$folder/normjit_property_tests" ${FILTER:+-tc="$FILTER"} >"$out/property.$i.log" 2>&1 &
    pids+=($!)
  done
  for ((i = 0; i < processes; ++i)); do
    wait "${pids[$i]}"
    case $? in
      0) report "random problems, seed $((seed + i))" 0 ;;
      124) report "random problems, seed $((seed + i)): cut off in $(grep -h -A 1 '^TEST CASE' "$out/property.$i.log" | tail -n 2 | head -n 1)" 1 ;;
      *) report "random problems, seed $((seed + i))" 1 ;;
    esac
  done
  cat "$out"/property.*.log | grep -E "replay:|ERROR:" -A 2 | cut -c 1-700 | head -60
}

torch() {
  local name
  local -A running
  for name in formula_plans formulas eight_bit rowwise rowwise_operations rowwise_results gated eager graph_gpu; do
    PYTHONPATH=$root/tools/lab:${PYTHONPATH:-} timeout -s INT -k 5 "${TORCH_SECONDS:-180}" python3 -m pytest -q --tb=short -p gpu_tensors \
      -p no:cacheprovider "$root/runtime/python/tests/torch_${name}_test.py" >"$out/torch_$name.log" 2>&1 &
    running[$name]=$!
  done
  for name in "${!running[@]}"; do
    wait "${running[$name]}"
    report "torch_$name" $?
  done
  grep -hE "^(FAILED|ERROR) " "$out"/torch_*.log
}

stress() {
  NORMJIT_STRESS_SECONDS=${STRESS_SECONDS:-20} "$folder/normjit_gpu_stress_tests" >"$out/stress.log" 2>&1
  report "stress tests" $?
  grep -E "ERROR|MESSAGE|test cases:" "$out/stress.log"
  local processes=${PROCESSES:-14}
  ROUNDS=$(((10000 + processes - 1) / processes)) FILTER='gradients of random problems*' random
}

# Lists one launch of every kind of kernel, checked against the reference: spec | rows | changes to the heuristic's
# schedule. With slices, rows are written SLICESxROWS. A file of templates/norms stands for its formula.
sanitizer_cases() {
  cat <<'CASES'
layernorm cols=256 x=bf16 gamma=f32 | 301 |
rmsnorm cols=33 x=f16 | 77 |
layernorm cols=1000 x=f32 stats=recompute | 130 |
layernorm cols=1024 x=bf16 | 200 |
layernorm cols=4097 x=bf16 | 165 |
rmsnorm cols=1003 x=f16 stats=recompute | 600 |
layernorm cols=101 x=f32 | 5000 |
layernorm cols=70001 x=bf16 | 30 | pipeline_depth=6
rmsnorm cols=40001 x=bf16 | 70 |
layernorm cols=33000 x=bf16 | 70 |
rmsnorm cols=4096 x=bf16 | 300 |
layernorm cols=1024 x=f64 | 40 |
layernorm cols=16384 x=bf16 | 40 |
rmsnorm cols=65536 x=bf16 stats=recompute | 19 |
layernorm cols=262144 x=bf16 | 5 |
layernorm cols=300001 x=bf16 | 7 |
layernorm cols=1024 x=bf16 dresidual=f32 out=dx,dresidual_in,mean,rstd,dgamma stats=recompute | 200 |
rmsnorm cols=20001 x=bf16 dresidual_in=f32 out=dx,dresidual_in,rstd stats=recompute,bf16 | 60 |
layernorm cols=70001 x=f32 out=dx,dresidual_in,mean,rstd,dgamma,dbeta stats=recompute | 20 | row_groups=6
rmsnorm cols=33 x=f16 dresidual_in=f16 out=dx,dresidual_in,rstd,dgamma stats=recompute | 500 |
layernorm cols=1024 x=bf16 accumulate=dgamma,dbeta | 200 |
rmsnorm cols=4097 x=f16 gamma=f32 accumulate=dgamma | 200 |
layernorm cols=4096 x=bf16 invariant=1 | 200 |
layernorm pass=forward cols=4096 x=bf16 out=y,mean,rstd | 200 |
rmsnorm pass=forward cols=1003 x=f16 residual=f32 rowscale=f32 | 300 |
layernorm pass=forward cols=8192 x=f16 gamma=f32 out=y,mean,rstd | 400 |
rmsnorm pass=forward cols=8192 x=bf16 | 700 |
layernorm pass=forward cols=16384 x=bf16 | 300 |
layernorm pass=forward cols=2048 x=bf16 gamma=f32 residual=bf16 | 3000 |
rmsnorm pass=forward cols=4097 x=bf16 | 900 |
rmsnorm pass=forward cols=40001 x=bf16 | 60 |
layernorm pass=forward cols=300001 x=bf16 | 7 |
layernorm cols=4096 x=bf16 out=dx,dresidual_in,mean,dbeta stats=recompute | 99 | form=two_pass threads_per_row=256 rows_per_block=1 cluster=1 pipeline_depth=2 staging=registers row_memory=registers column_memory=registers pace=0 row_groups=8
layernorm pass=forward cols=65536 x=bf16 | 40 |
rmsnorm pass=forward cols=65536 x=bf16 | 60 |
rmsnorm pass=forward cols=16384 x=bf16 gamma=f32 out=y,rstd | 400 |
layernorm pass=forward cols=32768 x=bf16 | 500 |
layernorm pass=forward cols=512 x=bf16 | 3001 |
layernorm pass=forward slices=any cols=128 x=bf16 per_slice=gamma,beta | 7x130 |
layernorm cols=34695 x=bf16 | 80 | threads_per_row=192 row_groups=24 pipeline_depth=3
layernorm cols=25003 x=bf16 | 40 | cluster=16 threads_per_row=128 row_groups=7 blocks_per_sm=2 pipeline_depth=3
layernorm cols=47872 x=f16 | 1 | cluster=16 threads_per_row=160 row_groups=1 blocks_per_sm=1 vector_width=4 pipeline_depth=4 staging=async pace=0 row_memory=registers column_memory=registers
rmsnorm cols=4096 x=bf16 rounding=llama | 99 |
layernorm slices=any cols=1152 x=bf16 per_slice=gamma,beta gamma_offset=1 | 9x70 |
layernorm slices=any cols=1152 x=bf16 per_slice=gamma | 700x3 |
rmsnorm slices=any cols=128 x=bf16 accumulate=dgamma | 300x16 |
rmsnorm slices=any cols=128 x=bf16 per_slice=gamma accumulate=dgamma | 16x300 |
layernorm slices=any cols=1003 x=f16 per_slice=beta source=y | 20x40 |
layernorm slices=any cols=1003 x=f16 per_slice=gamma | 40x3 |
layernorm slices=any cols=245 x=bf16 per_slice=beta | 2x1 |
layernorm slices=any cols=16384 x=bf16 per_slice=gamma,beta | 5x40 | staging=async
rmsnorm slices=any cols=33 x=f16 | 60x9 |
layernorm slices=any cols=300001 x=bf16 per_slice=gamma,beta | 3x3 |
rmsnorm pass=forward slices=any cols=4096 x=bf16 per_slice=gamma residual=bf16 | 7x30 |
layernorm pass=forward slices=any cols=1152 x=bf16 per_slice=gamma,beta | 300x2 |
layernorm cols=16384 x=bf16 gamma=f32 | 2 | row_groups=1 pace=0
rmsnorm cols=1024 x=bf16 accumulate=dgamma | 40 | row_groups=1 pace=0
layernorm cols=3333 x=bf16 | 300 |
layernorm cols=4096 x=bf16 gamma=f32 out=dx,dgamma,dbeta,amax | 300 |
rmsnorm cols=33 x=f16 gamma=none out=amax | 500 |
layernorm cols=1003 x=bf16 out=dx,amax | 600 |
layernorm cols=65536 x=bf16 out=dx,dgamma,amax | 19 |
layernorm cols=1024 x=f64 out=dx,amax | 2 | row_groups=1
layernorm cols=300001 x=bf16 out=dx,dgamma,amax | 7 |
layernorm slices=any cols=1152 x=bf16 per_slice=gamma,beta out=dx,dgamma,dbeta,amax | 9x70 |
layernorm slices=any cols=1003 x=f16 per_slice=beta out=amax | 20x40 |
layernorm slices=any cols=1003 x=f16 per_slice=gamma,beta out=dx,dgamma,dbeta,amax | 20x40 |
layernorm slices=any cols=1003 x=f16 per_slice=beta out=dx,dgamma,dbeta,amax | 700x3 |
layernorm cols=4096 x=bf16 invariant=1 out=dx,dgamma,dbeta,amax | 200 |
layernorm cols=25003 x=bf16 out=dx,dgamma,dbeta,amax | 40 | cluster=16 threads_per_row=128 row_groups=7 blocks_per_sm=2 pipeline_depth=3
rmsnorm slices=any cols=300001 x=bf16 per_slice=gamma out=dx,dgamma,amax | 3x3 |
layernorm cols=4096 x=bf16 dresidual=bf16 | 99 | form=two_pass threads_per_row=256 rows_per_block=1 cluster=1 pipeline_depth=2 staging=registers row_memory=registers column_memory=registers pace=0 row_groups=8
gated_rmsnorm.norm cols=1024 x=bf16 gamma=f32 | 200 |
gated_rmsnorm.norm cols=128 x=bf16 gamma=bf16 save=none | 3000 |
gated_rmsnorm.norm pass=forward cols=4097 x=f16 gamma=f16 | 200 |
rmsnorm_of_gated.norm cols=1003 x=bf16 gamma=f32 | 300 |
rmsnorm_of_gated.norm cols=40001 x=bf16 gamma=bf16 save=none | 30 |
qk_norm_rope.norm slices=any cols=128 x=bf16 gamma=bf16 out=dx,dgamma | 16x300 |
qk_norm_rope.norm pass=forward slices=any cols=256 x=f16 gamma=f32 | 9x130 |
qk_norm_rope_interleaved.norm slices=any cols=128 x=bf16 gamma=bf16 out=dx,dgamma | 16x300 |
qk_norm_rope_interleaved.norm cols=4098 x=f16 gamma=f32 out=dx,dgamma | 300 |
qk_norm_rope_interleaved.norm pass=forward slices=any cols=64 x=bf16 gamma=bf16 | 9x130 |
rmsnorm_blocks.norm pass=forward cols=4096 x=bf16 gamma=bf16 y=e4m3 | 300 |
rmsnorm_blocks.norm pass=forward cols=128 x=bf16 y=e4m3 residual=bf16 out=y,scale,h,rstd | 3000 |
rmsnorm_blocks.norm pass=forward cols=40064 x=f16 y=e4m3 | 30 |
rmsnorm_blocks.norm pass=forward cols=262144 x=bf16 gamma=f32 y=e4m3 | 7 |
rmsnorm_mx.norm pass=forward cols=7168 x=bf16 gamma=bf16 y=e4m3 scale=e8m0 | 200 |
rmsnorm_i8.norm pass=forward cols=4096 x=bf16 gamma=bf16 y=i8 | 300 |
rmsnorm_mx.norm pass=forward cols=96 x=f32 y=e5m2 scale=e8m0 | 700 |
softmax.norm cols=4096 x=bf16 | 200 |
softmax.norm pass=forward cols=33 x=f32 | 700 |
softmax.norm pass=forward cols=300001 x=bf16 | 7 |
softmax.norm cols=300001 x=f32 | 7 |
l2norm.norm cols=256 x=bf16 | 900 |
dynamic_tanh.norm cols=8192 x=bf16 gamma=bf16 beta=bf16 alpha=0.5 | 200 |
norm moments(x[M,N]) -> sum[N], spread[N] { sum = col_sum(x); spread = col_sum(x * x) - sum * sum } pass=forward cols=1000 x=bf16 | 300 |
norm moments(x[M,N]) -> sum[N], spread[N] { sum = col_sum(x); spread = col_sum(x * x) - sum * sum } pass=forward cols=4097 x=f16 | 200 |
norm moments(x[M,N]) -> sum[N], spread[N] { sum = col_sum(x); spread = col_sum(x * x) - sum * sum } pass=forward cols=512 x=f64 | 30 | row_groups=1
norm moments(x[M,N]) -> sum[N], spread[N] { sum = col_sum(x); spread = col_sum(x * x) - sum * sum } pass=forward cols=300001 x=bf16 | 7 |
norm each(x[S,M,N], z[S,M,N]) -> each[S,N], all[N] { each = col_sum(x) * col_sum(z); all = col_sum(x) + col_sum(x * z) } pass=forward slices=any cols=1000 x=f16 | 9x70 |
norm each(x[S,M,N], z[S,M,N]) -> each[S,N], all[N] { each = col_sum(x) * col_sum(z); all = col_sum(x) + col_sum(x * z) } pass=forward slices=any cols=1003 x=f16 | 300x3 |
norm shared(x[M,N], a[N/8], b[N/8], c[N]) -> y[M,N] { y = x * (a + b + c) } cols=1024 x=bf16 | 200 |
norm shared(x[S,M,N], a[S,N/8], b[S,N/8]) -> y[S,M,N] { y = x * (a + b) } slices=any cols=1024 x=bf16 | 20x9 |
CASES
}

value_of() { sed -n "s/.*\\b$2=\\([^ ]*\\).*/\\1/p" <<<"$1"; }  # schedule field

# Prints the schedule with at most 7 clusters if they have 16 blocks. When 8 of these are resident at once, synccheck
# 2025.3 ends with "illegal address", even for a kernel that only waits for its cluster; the other tools find nothing.
checkable_schedule() { # schedule
  if [ "$(value_of "$1" cluster)" = 16 ] && [ "$(value_of "$1" row_groups)" -gt 7 ]; then
    sed 's/\brow_groups=[0-9]*/row_groups=7/' <<<"$1"
  else
    echo "$1"
  fi
}

# Prints as many of the rows as the tools can check. With rows_per_team, the rows decide how many clusters there are.
# With staging=bulk, clusters may not fill a stage twice. Otherwise racecheck 2025.3 reports a false race (layernorm
# cols=20000 x=f32, 200 rows; none with staging=async). It does not see that the row sums, which arrive by st.async at a
# barrier, come between the reads of a stage and the bulk copy that refills it.
checkable_rows() { # schedule rows
  local cluster rows_per_team most=$2
  cluster=$(value_of "$1" cluster) rows_per_team=$(value_of "$1" rows_per_team)
  if [ "$cluster" = 16 ] && [ "$rows_per_team" -gt 0 ]; then
    most=$((7 * rows_per_team))
  elif [ "$cluster" -gt 1 ] && [ "$(value_of "$1" staging)" = bulk ]; then
    most=$(($(value_of "$1" row_groups) * $(value_of "$1" rows_per_block) * $(value_of "$1" pipeline_depth)))
  fi
  echo $((most < $2 ? most : $2))
}

# Prints the line that replays a case on the target; see tests/property/case.h.
case_line() { # target spec rows changes
  local target=$1 info spec schedule change words=("$2") slices=1 rows=$3
  case $rows in *x*) slices=${rows%%x*} rows=${rows##*x} ;; esac
  case $2 in *.norm\ *) words=("$root/templates/norms/${2%% *}" "${2#* }") ;; esac
  info=$("$folder/normjit" info "${words[@]}" --target "$target")
  spec=$(sed -n 's/^spec *//p' <<<"$info")
  schedule=$(sed -n 's/^schedule *//p' <<<"$info")
  for change in $4; do schedule=$(sed "s/\\b${change%%=*}=[^ ]*/$change/" <<<"$schedule"); done
  schedule=$(checkable_schedule "$schedule")
  if [ "$slices" = 1 ]; then rows=$(checkable_rows "$schedule" "$rows"); fi
  echo "$spec | $schedule | $target | case rows=$rows slices=$slices data=1 layout=0 threads=1"
}

# Runs a case under a tool and prints its line. initcheck finds reads of memory that the tests left unwritten.
sanitize() { # number tool
  local line
  line=$(sed -n "$1p" "$out/sanitizer_cases.txt")
  if [ "$2" = initcheck ]; then export NORMJIT_TEST_UNWRITTEN=1; fi
  NORMJIT_TEST_CASE=$line timeout 200 compute-sanitizer --tool "$2" --error-exitcode 9 \
    "$folder/normjit_property_tests" -tc='gradients of random problems*' >"$out/$2.$1.log" 2>&1
  report "$2: ${line%%|*}" $?
}

sanitizer() {
  local target cases tool spec rows changes
  target=$(sed -n "s/^$device *available .*\\(sm_[0-9].*\\)$/\\1/p" "$out/info.txt")
  while IFS='|' read -r spec rows changes; do
    case_line "$target" "${spec% }" "${rows// /}" "$changes"
  done < <(sanitizer_cases | grep -E -- "${CASES:-}") >"$out/sanitizer_cases.txt"
  export -f report sanitize
  export out folder
  cases=$(wc -l <"$out/sanitizer_cases.txt")
  for tool in memcheck racecheck initcheck synccheck; do seq -f "%g $tool" "$cases"; done | sort -n |
    xargs -P "${PROCESSES:-14}" -L 1 bash -c 'sanitize "$@"' sanitize | tee "$out/sanitizer.txt"
  failures=$((failures + $(grep -c ^FAILED "$out/sanitizer.txt")))
  cat "$out"/*check.[0-9]*.log >"$out/sanitizer.log" && rm -f "$out"/*check.[0-9]*.log
  grep -hE "=========.*(Error|Race|Invalid|hazard)|ERROR" "$out/sanitizer.log" | sort | uniq -c | head -20
}

bench() {
  "$folder/normjit" bench "${SHAPES:-$root/tools/lab/gpu_shapes.txt}" --device "$device" --seconds "${SECONDS_EACH:-0.03}" \
    --json "$out/normjit.json"
  report "bench" $?
}

peers() {
  python3 "$root/tools/lab/gpu_peers.py" --shapes "${SHAPES:-$root/tools/lab/gpu_shapes.txt}" --json "$out/peers.json"
  report "peers" $?
}

"$folder/normjit" info >"$out/info.txt" 2>&1
cat "$out/info.txt"
for part in $parts; do "$part"; done
echo "$failures failed"
[ "$failures" -eq 0 ]
