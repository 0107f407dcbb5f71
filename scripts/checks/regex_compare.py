#!/usr/bin/env python3
"""Compares the grammar engine's regular expressions with Python's re.fullmatch on random patterns and texts.

    regex_compare.py --millrace build/release/millrace [--count 500] [--seed 1]

A pattern that the engine refuses must say so (status 3) and is counted; a pattern that Python refuses is not used. The texts
of a pattern are random ones over its letters, mutations of what the engine samples from it, and those samples themselves,
which Python must match. Prints every disagreement and totals; exit status 1 when there is one.
"""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import warnings

ATOMS = ["a", "b", "c", "é", "0", "1", "-", "_", " ", r"\.", r"\*", r"\d", r"\w", r"\s", r"\D", r"\W", r"\S", r"\t", r"\n", r"\x61",
         r"\u00e9", ".", "[ab]", "[^a]", "[a-c0-9]", r"[\w-]", r"[^\s]", r"[\]a]", "[^-b]"]
COUNTS = ["*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "+?", "??", "{0}", "{,2}"]


def pattern(rng, depth=0):
    kind = rng.random()
    if depth > 3 or kind < 0.45:
        return rng.choice(ATOMS)
    if kind < 0.65:
        return "".join(pattern(rng, depth + 1) for _ in range(rng.randint(1, 3)))
    if kind < 0.8:
        return rng.choice(["(%s)", "(?:%s)", "(?P<n%d>%%s)" % rng.randrange(10**6)]) % "|".join(
            pattern(rng, depth + 1) for _ in range(rng.randint(1, 3)))
    inner = pattern(rng, depth + 1)
    if not (inner.startswith(("(", "[")) or inner in ATOMS):
        inner = "(?:%s)" % inner
    return inner + rng.choice(COUNTS)


def run(*args):
    try:
        return subprocess.run(args, capture_output=True, text=True, timeout=150)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(args, 124, "", "no end within 150 s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    rng = random.Random(args.seed)
    used = refused = compared = matched = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        grammar, instances = os.path.join(folder, "regex"), os.path.join(folder, "instances")
        while used < args.count:
            source = pattern(rng)
            if source != source.strip("\n\r"):
                continue
            try:
                own = re.compile(source, re.ASCII)  # shorthand classes are those of ASCII here
            except re.error:
                continue
            used += 1
            with open(grammar, "w") as f:
                f.write(source)
            sampled = run(args.millrace, "grammar", "sample", "--regex", grammar, "--seed", str(used), "--count", "6", "--max-tokens", "12")
            if sampled.returncode == 3:
                refused += 1
                if "matches no text" not in sampled.stderr and "refused" not in sampled.stderr:
                    print(f"{source!r}: refused without a sentence: {sampled.stderr.strip()}")
                    wrong += 1
                continue
            texts = [json.loads(line) for line in filter(None, sampled.stdout.split("\n"))]
            if sampled.returncode != 0:
                print(f"{source!r}: sampling ended with {sampled.returncode}: {sampled.stderr.strip()[:200]}")
                wrong += 1
            for t in texts:
                if "�" not in t and not own.fullmatch(t):
                    print(f"{source!r}: sampled {t!r}, which re does not match")
                    wrong += 1
            letters = "abcé01-_ .*\t\n\\]"
            for _ in range(24):
                if texts and rng.random() < 0.6:
                    t = list(rng.choice(texts))[:40]
                    for _ in range(rng.randint(1, 2)):
                        at = rng.randint(0, len(t))
                        t[at:at + rng.randint(0, 1)] = rng.choice(["", rng.choice(letters)])
                    texts.append("".join(t))
                else:
                    texts.append("".join(rng.choice(letters) for _ in range(rng.randint(0, 6))))
            with open(instances, "w") as f:
                f.writelines(json.dumps(t) + "\n" for t in texts)
            checked = run(args.millrace, "grammar", "check", "--regex", grammar, "--instances", instances)
            for t, line in zip(texts, checked.stdout.split("\n")):
                compared += 1
                expected = own.fullmatch(t) is not None
                matched += expected
                if json.loads(line)["accepted"] != expected:
                    print(f"{source!r} and {t!r}: re says {expected}, the engine {not expected}")
                    wrong += 1
    print(f"{used} patterns ({refused} refused), {compared} texts ({matched} match): {wrong} wrong; seed {args.seed}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
