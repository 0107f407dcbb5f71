#!/usr/bin/env python3
"""Checks the grammar engine against Python's jsonschema, and against ajv where Node has it.

For every schema of tests/grammar/schemas.jsonl (or of --schemas): samples texts with random logits, all of which must
be valid and must have come to an end; and offers instances, valid and invalid by jsonschema's judgement, of which the
valid ones must be accepted and the invalid ones refused. A refused schema must be marked so in the list. Prints totals.

usage: grammar_validate.py --millrace PATH [--seeds 100] [--schemas FILE]... [--first N] [--skip N] [--compact]
                           [--node-modules FOLDER with ajv and ajv-formats]
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

import jsonschema
from jsonschema.validators import validator_for

HERE = os.path.dirname(os.path.abspath(__file__))
CORPUS = os.path.join(HERE, "..", "..", "tests", "grammar", "schemas.jsonl")

# Lines {"schema", "texts"} in, {"verdicts"} or {"error"} out.
AJV = r"""
const path = require("path"), root = process.argv[1];
const formats = require(path.join(root, "ajv-formats")).default;
const make = (name) => {
  const Ajv = require(path.join(root, name)).default;
  return formats(new Ajv({strict: false, allErrors: false, logger: false, unicodeRegExp: true}));
};
require("readline").createInterface({input: process.stdin}).on("line", (line) => {
  const {schema, texts} = JSON.parse(line);
  let answer;
  try {
    const old = typeof schema === "object" && /draft-0[4-7]/.test(schema.$schema || "");
    const check = make(old ? "ajv" : "ajv/dist/2020").compile(schema);
    answer = {verdicts: texts.map((t) => check(JSON.parse(t)))};
  } catch (e) {
    answer = {error: String(e.message || e)};
  }
  console.log(JSON.stringify(answer));
});
"""


class SecondValidator:
    """ajv in a process of its own."""

    def __init__(self, node_modules):
        self.process = subprocess.Popen(["node", "-e", AJV, os.path.abspath(node_modules)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.judged = self.unable = 0

    def verdicts(self, schema, texts):
        """One verdict a text, or None when ajv cannot compile the schema."""
        self.process.stdin.write(json.dumps({"schema": schema, "texts": texts}) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            self.unable += 1
            return None
        self.judged += len(texts)
        return answer["verdicts"]


def validator(schema):
    if isinstance(schema, bool):
        return jsonschema.Draft202012Validator(schema)
    cls = validator_for(schema, default=jsonschema.Draft202012Validator)
    return cls(schema, format_checker=cls.FORMAT_CHECKER)


def spellings(value, rng):
    """The value as JSON text in a random style: order of keys, white space, escapes."""
    def write(v):
        if isinstance(v, dict):
            items = list(v.items())
            rng.shuffle(items)
            return "{" + ws() + (ws() + "," + ws()).join(
                write(k) + ws() + ":" + ws() + write(x) for k, x in items) + ws() + "}"
        if isinstance(v, list):
            return "[" + ws() + (ws() + "," + ws()).join(write(x) for x in v) + ws() + "]"
        if isinstance(v, str):
            out = ['"']
            for c in v:
                if rng.random() < 0.05 and ord(c) < 0x10000:
                    out.append("\\u%04x" % ord(c) if rng.random() < 0.5 else "\\u%04X" % ord(c))
                else:
                    out.append(json.dumps(c, ensure_ascii=rng.random() < 0.3)[1:-1])
            return "".join(out) + '"'
        return json.dumps(v)

    def ws():
        return rng.choice(["", "", "", " ", "\n", "  "])
    return write(value)


def run(args, timeout=300):
    return subprocess.run(args, capture_output=True, text=True, timeout=timeout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--schemas", action="append")
    parser.add_argument("--first", type=int, default=10**9)
    parser.add_argument("--compact", action="store_true")
    parser.add_argument("--max-tokens", type=int, default=120)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--node-modules", help="folder with ajv and ajv-formats: the second validator")
    options = parser.parse_args()
    rng = random.Random(7)
    cases = []
    for path in options.schemas or [CORPUS]:
        with open(path) as f:
            cases += [json.loads(line) for line in f if line.strip()]
    bad = samples = offered = refused = 0
    second = SecondValidator(options.node_modules) if options.node_modules else None
    with tempfile.TemporaryDirectory() as folder:
        schema_file, instance_file = os.path.join(folder, "schema"), os.path.join(folder, "instances")
        for number, case in enumerate(cases[:options.first]):
            if number < options.skip:
                continue
            schema = case["schema"]
            json.dump(schema, open(schema_file, "w"))
            check = validator(schema)
            texts, verdicts = [], []
            for kind in ("valid", "invalid"):
                for value in case.get(kind, []):
                    judged = check.is_valid(value)
                    if judged != (kind == "valid"):
                        print(f"case {number}: the list says {kind}, jsonschema does not: {json.dumps(value)}")
                        bad += 1
                    for text in {json.dumps(value), spellings(value, rng), json.dumps(value, indent=2)}:
                        texts.append(text)
                        verdicts.append(judged)
            with open(instance_file, "w") as f:
                f.writelines(json.dumps(t) + "\n" for t in texts)
            extra = ["--compact"] if options.compact else []
            result = run([options.millrace, "grammar", "check", "--json-schema", schema_file, "--instances", instance_file])
            if result.returncode == 3:
                refused += 1
                contradictory = "contradicts itself" in result.stderr or "matches no text" in result.stderr
                if not case.get("refused") and not (contradictory and not case["valid"]) and \
                        "cannot be enforced" not in result.stderr:
                    print(f"case {number}: refused: {result.stderr.strip()} {json.dumps(schema)[:300]}")
                    bad += 1
                continue
            if case.get("refused") or result.returncode != 0:
                print(f"case {number}: status {result.returncode}, expected {case.get('refused')}: {json.dumps(schema)[:300]} {result.stderr}")
                bad += 1
                continue
            for text, verdict, line in zip(texts, verdicts, result.stdout.rstrip("\n").split("\n")):
                offered += 1
                if json.loads(line)["accepted"] != verdict:
                    print(f"case {number}: {'false reject' if verdict else 'FALSE ACCEPT'} of {text!r} {line} by {json.dumps(schema)[:400]}")
                    bad += 1
            if options.seeds == 0:
                continue
            result = run([options.millrace, "grammar", "sample", "--json-schema", schema_file, "--seed", str(number * 1000),
                          "--count", str(options.seeds), "--max-tokens", str(options.max_tokens)] + extra)
            if result.returncode != 0:
                print(f"case {number}: sampling failed: {result.stderr.strip()} {json.dumps(schema)[:400]}")
                bad += 1
            accepted = []
            for line in filter(None, result.stdout.split("\n")):
                text = json.loads(line)
                samples += 1
                try:
                    value = json.loads(text)
                except ValueError as e:
                    print(f"case {number}: sample is no JSON: {text!r} {e}")
                    bad += 1
                    continue
                if not check.is_valid(value):
                    message = next(check.iter_errors(value)).message[:200]
                    print(f"case {number}: FALSE ACCEPT of sample {text!r} by {json.dumps(schema)[:400]}: {message}")
                    bad += 1
                    continue
                accepted.append(text)
            for text, valid in zip(accepted, (second and second.verdicts(schema, accepted)) or []):
                if not valid:
                    print(f"case {number}: FALSE ACCEPT by ajv of sample {text!r} by {json.dumps(schema)[:400]}")
                    bad += 1
            sys.stdout.flush()
    print(f"{len(cases[options.skip:options.first])} schemas ({refused} refused), {offered} instances, {samples} samples: {bad} wrong")
    if second:
        print(f"ajv judged {second.judged} samples; it could not compile {second.unable} schemas")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
