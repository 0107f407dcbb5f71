#!/usr/bin/env python3
"""Compares `millrace grammar check --json-schema` with Python's jsonschema (and ajv) keyword by keyword.

tests/grammar/keywords.jsonl holds schemas with instances of every kind, in two lists by jsonschema's verdict, which is
asked again. Each instance is offered as json.dumps writes it by default, compact and indented, with its members in reverse order,
and with a character of each string escaped. A schema may be refused: refusals are counted and named with --refusals.

usage: grammar_keywords.py --millrace PATH [--cases FILE] [--node-modules FOLDER with ajv] [--refusals]
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import jsonschema
from jsonschema.validators import validator_for

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = os.path.join(HERE, "..", "..", "tests", "grammar", "keywords.jsonl")
AJV = r"""
const path = require("path"), root = process.argv[1];
const lines = require("fs").readFileSync(0, "utf8").split("\n").filter(Boolean);
const kinds = {"2020": "ajv/dist/2020", "2019": "ajv/dist/2019", "7": "ajv"};
for (const line of lines) {
  const {draft, schema, instances} = JSON.parse(line);
  let out = null;
  try {
    const Ajv = require(path.join(root, kinds[draft])).default;
    const validate = new Ajv({strict: false, validateFormats: false, logger: false}).compile(schema);
    out = instances.map((i) => validate(i));
  } catch (e) { out = String(e.message).slice(0, 200); }
  console.log(JSON.stringify(out));
}
"""


def reversed_members(value):
    if isinstance(value, dict):
        return {k: reversed_members(v) for k, v in reversed(list(value.items()))}
    if isinstance(value, list):
        return [reversed_members(v) for v in value]
    return value


def escaped(text):
    """The first letter of every string as an escape."""
    out, inside, first, at = [], False, False, 0
    while at < len(text):
        c = text[at]
        if inside and c == "\\":
            out.append(text[at:at + 2])
            at += 2
            first = False
            continue
        if c == '"':
            inside, first = not inside, not inside
        elif inside and first:
            first = False
            if ord(c) < 0x10000:
                c = "\\u%04x" % ord(c)
        out.append(c)
        at += 1
    return "".join(out)


def spellings(value):
    plain = json.dumps(value)
    texts = [plain, json.dumps(value, separators=(",", ":")), json.dumps(value, indent=2),
             json.dumps(value, ensure_ascii=False), json.dumps(reversed_members(value)), escaped(plain)]
    return list(dict.fromkeys(texts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--node-modules")
    parser.add_argument("--refusals", action="store_true")
    args = parser.parse_args()
    cases = [json.loads(line) for line in open(args.cases, encoding="utf-8") if line.strip()]
    wrong = refused = texts = disputed = 0
    ajv = [None] * len(cases)
    if args.node_modules:
        lines = []
        for case in cases:
            s = case["schema"]
            uri = s.get("$schema", "2020-12") if isinstance(s, dict) else "2020-12"
            draft = "7" if "draft-0" in uri else "2019" if "2019" in uri else "2020"
            lines.append(json.dumps({"draft": draft, "schema": s, "instances": case["valid"] + case["invalid"]}))
        done = subprocess.run(["node", "-e", AJV, os.path.abspath(args.node_modules)], input="\n".join(lines),
                              capture_output=True, text=True, check=True)
        ajv = [json.loads(line) for line in done.stdout.splitlines()]
    with tempfile.TemporaryDirectory() as folder:
        schema_file, instance_file = os.path.join(folder, "schema"), os.path.join(folder, "instances")
        for number, case in enumerate(cases, 1):
            schema, instances = case["schema"], case["valid"] + case["invalid"]
            cls = validator_for(schema, default=jsonschema.Draft202012Validator)
            check = cls(schema, format_checker=cls.FORMAT_CHECKER if case.get("formats") else None)
            verdicts = [check.is_valid(i) for i in instances]
            for i, (instance, verdict) in enumerate(zip(instances, verdicts)):
                if verdict != (i < len(case["valid"])):
                    print(f"case {number}: jsonschema finds {json.dumps(instance)[:80]} {verdict}, unlike the list")
            if isinstance(ajv[number - 1], list):
                for i, (ours, theirs) in enumerate(zip(verdicts, ajv[number - 1])):
                    if ours != theirs and not case.get("formats"):
                        disputed += 1
                        print(f"case {number}: jsonschema and ajv disagree on {json.dumps(instances[i])[:80]} "
                              f"of {json.dumps(schema)[:160]}")
            offered = [(t, v) for i, v in zip(instances, verdicts) for t in spellings(i)]
            with open(schema_file, "w", encoding="utf-8") as f:
                json.dump(schema, f)
            with open(instance_file, "w", encoding="utf-8") as f:
                f.writelines(json.dumps(t) + "\n" for t, _ in offered)
            run = subprocess.run([args.millrace, "grammar", "check", "--json-schema", schema_file, "--instances",
                                  instance_file], capture_output=True, text=True)
            if run.returncode == 3:
                if any(verdicts):
                    refused += 1
                    if args.refusals:
                        print(f"case {number} refused: {run.stderr.strip()[:200]}  {json.dumps(schema)[:200]}")
                continue
            if run.returncode != 0:
                wrong += 1
                print(f"case {number}: status {run.returncode}: {run.stderr.strip()[:200]}")
                continue
            answers = [json.loads(line)["accepted"] for line in run.stdout.splitlines()]
            texts += len(answers)
            for (text, valid), accepted in zip(offered, answers):
                if accepted != valid:
                    wrong += 1
                    print(f"case {number}: false {'accept' if accepted else 'reject'} of {text[:120]!r} by "
                          f"{json.dumps(schema)[:300]}")
    print(f"{len(cases)} schemas ({refused} refused), {texts} texts: {wrong} wrong; jsonschema and ajv disagree on "
          f"{disputed} instances")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
