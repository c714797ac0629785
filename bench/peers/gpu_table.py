#!/usr/bin/env python3
"""The lines of choir_bench_gpu --json and gpu.py as one table with ratios and targets.

  gpu_table.py CHOIR_LINES TORCH_LINES [JSON_OUT]
"""
import json, os, sys

# items/s over PyTorch's best, share of the matrix rate
TARGETS = dict(gpt2=(1.1, 0.55), resnet50=(1.0, None), bert=(1.1, None), toy=(10, None))
TARGETS["gpt2-50257"] = (None, None)  # beside gpt2


def lines(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f if line.startswith("{")]


def cell(row, rate):
    if not row:
        return f"{'-':>11} {'-':>12} {'-':>6} {'-':>9}"
    mfu = f"{100 * row['tflops'] / rate:.1f}%" if row["tflops"] and rate else "-"
    return f"{row['step_ms']:11.4f} {row['items_per_s']:12.0f} {mfu:>6} {row['peak_mib']:9.0f}"


def main():
    choir, torch = (lines(path) for path in sys.argv[1:3])
    rates = [max((r["matmul_tflops"] for r in side if "matmul_tflops" in r), default=0)
             for side in (choir, torch)]
    print(f"bf16 matrix rate, TFLOP/s: Choir {rates[0]:.1f}, PyTorch {rates[1]:.1f}; "
          "MFU is of the first")
    print(f"{'':16} {'Choir':>41} {'PyTorch':>41}")
    print(f"{'workload':10} {'batch':>5} " +
          f"{'step ms':>11} {'items/s':>12} {'MFU':>6} {'peak MiB':>9} " * 2)
    summary = []
    for name in TARGETS:
        ours, bare = {}, {}  # a second line of a batch is without the library's epilogues
        for r in choir:
            if r.get("workload") == name:
                (bare if r["batch"] in ours else ours)[r["batch"]] = r
        theirs = {}
        for r in torch:
            if r.get("workload") != name:
                continue
            if r["items_per_s"] > theirs.get(r["batch"], r)["items_per_s"] - 1e-9:
                theirs[r["batch"]] = r
        for batch in sorted(set(ours) | set(theirs)):
            both = (cell(side.get(batch), rates[0]) for side in (ours, theirs))
            print(f"{name:10} {batch:5} {' '.join(both)}")
        if not ours:
            continue
        best = max(ours.values(), key=lambda r: r["items_per_s"])
        speed, mfu = TARGETS[name]
        entry = dict(workload=name, batch=best["batch"], items_per_s=best["items_per_s"],
                     mfu=best["tflops"] / rates[0] if rates[0] else 0)
        text = f"{name}: batch {best['batch']}"
        if mfu:
            text += f", MFU {100 * entry['mfu']:.1f} % (target {100 * mfu:.0f})"
        if theirs:
            peer = max(theirs.values(), key=lambda r: r["items_per_s"])
            entry["ratio"] = best["items_per_s"] / peer["items_per_s"]
            text += f", {entry['ratio']:.2f} x PyTorch's batch {peer['batch']}"
            text += f" (target {speed})" if speed else ""
            same = ours.get(peer["batch"])
            if same and peer["peak_mib"]:
                entry["memory"] = same["peak_mib"] / peer["peak_mib"]
                text += f", memory {entry['memory']:.2f} of PyTorch's at its best batch"
                text += " (target 0.9)"
            losses = [side[b]["loss"] for b in sorted(set(ours) & set(theirs))
                      for side in (ours, theirs)][:2]
            if losses:
                entry["losses"] = losses
                text += ", loss {:.4f} and PyTorch's {:.4f}".format(*losses)
        entry["products_without_library"] = sum(r["products_without_library"]
                                                for r in ours.values())
        text += f", products without a library: {entry['products_without_library']}"
        for batch, row in bare.items():
            entry["without_epilogues"] = row["step_ms"] / ours[batch]["step_ms"]
            text += f", without epilogues {entry['without_epilogues']:.2f} of the time"
        summary.append(entry)
        print(text)
    if len(sys.argv) > 3:
        with open(sys.argv[3], "w") as f:
            json.dump(dict(choir=choir, torch=torch, summary=summary), f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
