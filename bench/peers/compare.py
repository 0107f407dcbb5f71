#!/usr/bin/env python3
"""Millrace beside llama.cpp on the same files, threads and token counts: interleaved runs, medians of ratios.

    bench/peers/compare.py MODEL.gguf [MODEL.gguf ...]

llama.cpp comes as npm's node-llama-cpp. `--peer FOLDER` names a folder whose node_modules has it; without it,
`npm install` puts it into a temporary folder first. Prints one Markdown table. Needs Python 3.9 and node 20.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BUILT = HERE.parent.parent / "build/release/millrace"


def install(folder):
    subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund", "node-llama-cpp@3"], cwd=folder,
                   check=True, stdout=sys.stderr)


def run_millrace(args, model):
    command = [args.millrace, "bench", "-m", model, "--json", "--threads", str(args.threads), "--prompt",
               str(args.prompt), "--decode", str(args.decode), "--sequences", args.sequences, "--repeat", "1"]
    tests = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    speeds = {}
    for test in tests:
        if test["test"] == "prompt":
            speeds["prompt"] = (test["tokens_per_second"], test["share_of_limit"])
        elif test["test"] == "decode":
            speeds[test["sequences"]] = (test["tokens_per_second"], test["share_of_limit"])
    return speeds


def run_peer(args, folder, model):
    command = ["node", str(HERE / "llama_cpp.mjs"), model, str(args.threads), str(args.prompt), str(args.decode),
               args.sequences]
    output = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout
    result = json.loads(output.strip().splitlines()[-1])
    speeds = {int(count): speed for count, speed in result["decode"].items()}
    if result["prompt"]:
        speeds["prompt"] = result["prompt"]
    return speeds


def compare(args, folder, model):
    rounds = []
    for number in range(args.rounds):
        # Who goes first alternates: a machine that warms up or is disturbed favours neither.
        if number % 2 == 0:
            ours, theirs = run_millrace(args, model), run_peer(args, folder, model)
        else:
            theirs, ours = run_peer(args, folder, model), run_millrace(args, model)
        rounds.append((ours, theirs))
        print(f"{pathlib.Path(model).name}: round {number + 1} of {args.rounds}", file=sys.stderr)
    rows = []
    for test in rounds[0][0]:
        ratios = [ours[test][0] / theirs[test] for ours, theirs in rounds]
        rows.append((test, statistics.median(ours[test][0] for ours, _ in rounds),
                     statistics.median(theirs[test] for _, theirs in rounds), statistics.median(ratios),
                     statistics.median(ours[test][1] for ours, _ in rounds)))
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--millrace", default=BUILT, help="default: build/release/millrace of this checkout")
    parser.add_argument("--peer", help="folder whose node_modules has node-llama-cpp")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--decode", type=int, default=16)
    parser.add_argument("--sequences", default="1,8,32")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    args.millrace = str(args.millrace)
    if os.sep in args.millrace:
        args.millrace = str(pathlib.Path(args.millrace).resolve())
    models = [str(pathlib.Path(model).resolve()) for model in args.models]
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.peer or temporary
        if not args.peer:
            install(folder)
        print("| model | test | millrace tokens/s | llama.cpp tokens/s | ratio | share of limit |")
        print("|---|---|---|---|---|---|")
        for model in models:
            for test, ours, theirs, ratio, share in compare(args, folder, model):
                name = f"prompt {args.prompt}" if test == "prompt" else f"decode, {test} together"
                print(f"| {pathlib.Path(model).stem} | {name} | {ours:.1f} | {theirs:.1f} | {ratio:.2f} | "
                      f"{100 * share:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
