#!/usr/bin/env python3
"""Compares the GBNF front end with llama.cpp's own, as node-llama-cpp carries it: which texts a grammar takes whole.

Texts are sampled from each grammar by `millrace grammar sample`, and changed at random; both must give the same verdict.
The grammars in REFUSED must be refused. Rules that begin with themselves, and an alternative on a line of its own, are taken
here and not there.

usage: gbnf_compare.py --millrace PATH --node-modules FOLDER with node-llama-cpp [--samples 40] [--seed 1]
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

import grammar_texts

GRAMMARS = [
    'root ::= "a" | "b" "c"*',
    'root ::= [a-z]+ [0-9]? [^a-z0-9]',
    'root ::= "x"{3} "y"{1,2} "z"{2,} [ab]{0,2}',
    'root ::= (("a" | "b" ("c" | "d")+)? "e")*',
    'root ::= first-part second-part # the rest is a remark\nfirst-part ::= "1" # one\nsecond-part ::= "2" | ""',
    'root ::= "\\x41" "\\u00e9" "\\U0001F600" "\\n" "\\t" "\\\\" "\\"" "\\r"',
    'root ::= [\\x41-\\x43] [\\u03b1-\\u03c9] [\\]\\[\\-] [\\\\]',
    'root ::= [^"\\\\\\x7F\\x00-\\x1F] | "\\\\" (["\\\\bfnrt] | "u" [0-9a-fA-F]{4})',
    'root ::= [^é漢] [é-ü] "漢"',
    'root ::= . "a" .',
    'root ::=\n  "a" |\n  "b"\n',
    'root ::= (\n  "a" |\n  "b"\n)+ tail\ntail ::= "!" | "?"',
    'root ::= expr\nexpr ::= term ([-+*/] term)*\nterm ::= num | "(" ws expr ")" ws\nnum ::= [0-9]+ ws\nws ::= [ \\t\\n]*',
    'root ::= object\nvalue ::= object | array | string | number | ("true" | "false" | "null") ws\n'
    'object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws\n'
    'array ::= "[" ws ( value ("," ws value)* )? "]" ws\n'
    'string ::= "\\"" ( [^"\\\\\\x7F\\x00-\\x1F] | "\\\\" (["\\\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\\"" ws\n'
    'number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws\n'
    'ws ::= | " " | "\\n" [ \\t]{0,20}',
    'root ::= move{1,3}\nmove ::= (pawn | nonpawn | "O-O" "-O"?) [+#]?\nnonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]\n'
    'pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?',
    'root ::= "- " item+\nitem ::= [^\\r\\n\\x0b\\x0c\\x85\\u2028\\u2029]+ "\\n"',
    'root ::= a\na ::= "(" a ")" | "."',
    'root ::= [a-] [-z] [a-c-e]',
    'root ::= "a"? ("b"+ | "c"?)+ "d"',
    'root ::= x x\nx ::= "p" x | "q"',
]
REFUSED = ['root ::= "a', 'root ::= missing', 'other ::= "a"', 'root ::= [a', 'root ::= ("a"',
           'root ::= "a"{2', 'root ::= * "a"', 'root "a"']
NODE = r"""
import path from "path";
import fs from "fs";
import {pathToFileURL} from "url";
const root = process.argv[2];
const {getLlama, LlamaGrammar} = await import(pathToFileURL(path.join(root, "node-llama-cpp/dist/index.js")).href);
const llama = await getLlama({gpu: false, build: "never", logLevel: "disabled"});
for (const {grammar, texts} of JSON.parse(fs.readFileSync(process.argv[3], "utf8"))) {
  let out = null;
  try {
    const g = new LlamaGrammar(llama, {grammar});
    out = texts.map((t) => g._testText(t));
  } catch (e) { out = String(e.message); }
  console.log(JSON.stringify(out));
}
process.exit(0);
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--node-modules", required=True)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random_ = random.Random(args.seed)
    wrong = seen = taken = 0
    asked = []
    with tempfile.TemporaryDirectory() as folder:
        grammar_file, text_file = os.path.join(folder, "grammar"), os.path.join(folder, "texts")
        command = [args.millrace, "grammar"]
        for number, grammar in enumerate(GRAMMARS, 1):
            found = grammar_texts.verdicts(args, "--gbnf", grammar, folder, random_)
            if isinstance(found, str):
                wrong += 1
                print(f"grammar {number}: {found}")
                continue
            asked.append((number, grammar, *found))
        for grammar in REFUSED:
            with open(grammar_file, "w", encoding="utf-8") as f:
                f.write(grammar)
            run = subprocess.run(command + ["check", "--gbnf", grammar_file], capture_output=True, text=True)
            if run.returncode != 3:
                wrong += 1
                print(f"not refused (status {run.returncode}): {grammar!r}")
        script = os.path.join(folder, "compare.mjs")
        with open(script, "w", encoding="utf-8") as f:
            f.write(NODE)
        with open(text_file, "w", encoding="utf-8") as f:
            json.dump([{"grammar": g, "texts": t} for _, g, t, _ in asked], f)
        run = subprocess.run(["node", script, os.path.abspath(args.node_modules), text_file], capture_output=True,
                             text=True)
        verdicts = [json.loads(line) for line in run.stdout.splitlines()]
        if len(verdicts) != len(asked):
            sys.exit(f"node-llama-cpp answered {len(verdicts)} of {len(asked)}: {run.stderr[-500:]}")
    for (number, grammar, texts, ours), theirs in zip(asked, verdicts):
        if isinstance(theirs, str):
            wrong += 1
            print(f"grammar {number}: llama.cpp refuses it: {theirs[:200]}")
            continue
        for text, mine, other in zip(texts, ours, theirs):
            seen += 1
            taken += other
            if mine != other:
                wrong += 1
                print(f"grammar {number}: {text!r} is {'taken' if mine else 'refused'}, unlike by llama.cpp: "
                      f"{grammar[:120]!r}")
    print(f"{len(GRAMMARS)} grammars, {seen} texts ({taken} in the language): {wrong} differences")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
