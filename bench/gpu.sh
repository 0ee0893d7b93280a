#!/usr/bin/env bash
# Everything that is measured on one CUDA GPU, in ten minutes: `OUT=folder bash bench/gpu.sh`. The folder gets all.log and
# a JSON file for each measurement, from which plots can be drawn anywhere. Needs torch with Triton, pytest, hypothesis and
# pytest-xdist; no mesh libraries.
set -u
mkdir -p "${OUT:?name a folder for the results}"
export PYTHONUNBUFFERED=1
end=590 # seconds in all; what there is no time for is left out, and said
commit=${COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
python3 -c 'import torch, triton; print(torch.__version__, triton.__version__)'
nvidia-smi -L

# seconds at most, name, command: its log, its last lines, its JSON
measure() {
  local limit=$1 name=$2
  shift 2
  ((limit < end - 5 - SECONDS)) || limit=$((end - 5 - SECONDS))
  if ((limit < 10)); then
    echo "== $name is left out: there was no time for it" | tee -a "$OUT/all.log"
    return
  fi
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
# Without pytest.ini, which turns warnings into errors and names packages that are missing where there is no page to test
PYTHONPATH=.:tests measure 160 tests python3 -m pytest -c /dev/null --rootdir . --noconftest -q -W default -n 8 \
  -p no:cacheprovider tests/test_engine_cuda.py tests/test_kernels.py tests/test_field_cuda.py
wait
grep -hv '^{' /tmp/compiled.* >>"$OUT/all.log"

measure 65 plans python3 bench/plans.py --step-only --seconds 45
measure 115 tokens python3 bench/tokens.py --ways usual fp8 int8 --seconds 85 --commit "$commit"
measure 110 ladder python3 bench/ladder.py --seconds 80 --commit "$commit"
measure 60 gate python3 bench/gate.py --prompts 8
measure 60 jacobi python3 bench/jacobi.py --prompts 100 --together 50 --windows 16
measure 90 tokens-compiled python3 bench/tokens.py --ways compiled --seconds 60 --commit "$commit"
