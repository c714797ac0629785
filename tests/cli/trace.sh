#!/usr/bin/env bash
# --trace: files in Chrome's format, one per rank, and a profile that counts the model's FLOPs.
. "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || skip "there is no python3 to read the trace with (install python3)"

mlp=(train random --model "mlp:in=20,hidden=30,layers=1,classes=4" --batch-size 8 --steps 5)

# Linear layers 20 -> 30 -> 4 on 8 samples: forward, both weights, and one input's gradient.
profile() {
    good "${mlp[@]}" --trace t.json --json
    python3 - out t.json <<'PYTHON' || fail "the profile or the trace is wrong"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert lines[-1]["event"] == "summary"
profile, = [line for line in lines if line["event"] == "profile"]
flops = sum(k["gflop"] for k in profile["kernels"]) * 1e9
assert abs(flops - 5 * 2 * 8 * (2 * 20 * 30 + 3 * 30 * 4)) < 1, flops
assert profile["steps"] == 5 and profile["matmul_gflops"] > 0
products = [k for k in profile["kernels"] if k["name"] == "matmul"]
assert {k["size"] for k in products} >= {"8x30x20", "8x4x30", "30x20x8"}, products
events = json.load(open(sys.argv[2]))["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
assert sum(e["name"] == "matmul" for e in spans) == sum(k["calls"] for k in products)
assert [e["name"] for e in spans if e["tid"] == 0] == ["step %d" % i for i in range(1, 6)]
assert all(e["dur"] >= 0 for e in spans)
PYTHON
}

ranks() {
    good "${mlp[@]}" --strategy ddp --nproc 2 --trace two.json --quiet
    for file in two.json two.json.1; do
        python3 -m json.tool "$file" >json 2>&1 || fail "$file is not JSON: $(cat json)"
    done
    grep -q tree_reduce two.json.1 || fail "no reduction in the trace of rank 1"
}

# Each collective has a line of its own.
collectives() {
    good "${mlp[@]}" --strategy fsdp --nproc 2 --trace two.json --json
    for name in all_gather all_reduce; do
        grep '"event":"profile"' out | grep -q "\"name\":\"$name\"" ||
            fail "no $name in the profile: $(grep '"event":"profile"' out)"
    done
}

same_bits() {
    good "${mlp[@]}" --json
    grep -o '"weights_sha256":"[0-9a-f]*"' out >plain
    good "${mlp[@]}" --json --trace t.json
    grep -o '"weights_sha256":"[0-9a-f]*"' out | cmp - plain || fail "a trace changes the result"
}

unwritable() {
    bad 1 'nowhere/t.json' "${mlp[@]}" --trace nowhere/t.json
}

check profile
check ranks
check collectives
check same_bits
check unwritable
finish
