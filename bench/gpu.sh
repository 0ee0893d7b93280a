#!/usr/bin/env bash
# Everything that is measured on one CUDA GPU, in ten minutes: `OUT=folder bash bench/gpu.sh`. The folder gets all.log, a
# JSON file for each measurement and the plots. Needs torch with Triton and pytest; no mesh libraries.
set -u
mkdir -p "${OUT:?name a folder for the results}"
export PYTHONUNBUFFERED=1
commit=${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
python3 -c 'import torch, triton; print(torch.__version__, triton.__version__)'
nvidia-smi -L

# seconds, name, command: its log, its last lines, its JSON
measure() {
  local limit=$1 name=$2
  shift 2
  timeout -k 5 "$limit" "$@" >"/tmp/$name.log" 2>&1
  echo "== $name ended with $? after $SECONDS s"
  grep -v '^{' "/tmp/$name.log" | tail -n 30 | cut -c1-180
  { echo "== $name"; cat "/tmp/$name.log"; } >>"$OUT/all.log"
  tail -n 1 "/tmp/$name.log" | grep '^{' >"$OUT/$name.json" || rm -f "$OUT/$name.json"
}

# Every kernel of v0.5 into Triton's cache, on all cores, while the tests run
for weights in bf16 fp8 int8; do
  for requests in 1 2 4 8 16 32; do
    timeout 100 python3 bench/compiled.py --weights $weights --requests $requests >/tmp/compiled.$weights.$requests 2>&1 &
  done
done
measure 140 tests python3 -m pytest --noconftest -q -W default -p no:cacheprovider tests/test_kernels.py \
  tests/test_engine_cuda.py tests/test_field_cuda.py
wait
grep -hv '^{' /tmp/compiled.* >>"$OUT/all.log"

measure 75 plans python3 bench/plans.py --step-only --seconds 50
measure 90 tokens python3 bench/tokens.py --ways kernels fp8 --seconds 60 --commit "$commit" --plot "$OUT/tokens.png"
measure 130 ladder python3 bench/ladder.py --seconds 95 --commit "$commit" --plot "$OUT/ladder.png"
measure 60 gate python3 bench/gate.py --prompts 8
measure 60 usual python3 bench/tokens.py --ways usual --requests 1 --seconds 20 --commit "$commit"
measure 50 jacobi python3 bench/jacobi.py --prompts 100 --together 50 --windows 16
