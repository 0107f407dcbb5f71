#!/usr/bin/env python3
"""Scores a demo model on held-out documents of the corpus.

  evaluate.py prompts HELD_OUT.jsonl PROMPTS.jsonl [--each 100]   the questions, and what a right answer is
  evaluate.py run MILLRACE MODEL PROMPTS.jsonl OUT.jsonl          greedy answers of `millrace run`
  evaluate.py same OUT_A.jsonl OUT_B.jsonl                        whether two engines gave the same token ids
  evaluate.py score PROMPTS.jsonl OUT.jsonl [--json SCORES.json] [--stories STORIES.md]

OUT holds one {"text": answer} a line; llama_cpp_greedy.mjs writes the same form. No grammar constrains the answers.
"""
import argparse
import json
import re
import subprocess


def prompt_of(document):
    """The conversation up to the first answer that the document's check speaks of."""
    text, turns = "", []
    for piece, answer in document["pieces"]:
        piece = piece.replace("\u200b", "")
        if answer:
            turns.append((text, piece))
        text += piece
    kind = document["kind"]
    for prompt, answer in turns:
        answer = answer.removesuffix("<|im_end|>")
        check = document["check"]
        if kind == "role" and answer not in check["among"]:
            continue
        if kind == "tool" and not answer.startswith("<tool_call>"):
            continue
        if kind == "no_tool" and answer != check["text"]:
            continue
        return prompt
    return None


def make_prompts(args):
    taken = {}
    with open(args.held_out, encoding="utf-8") as lines, open(args.prompts, "w", encoding="utf-8") as out:
        for line in lines:
            document = json.loads(line)
            if "check" not in document:
                continue
            key = (document["kind"], document["lang"])
            prompt = prompt_of(document)
            if prompt is None or taken.get(key, 0) >= args.each:
                continue
            taken[key] = taken.get(key, 0) + 1
            out.write(json.dumps({"kind": key[0], "lang": key[1], "prompt": prompt, "max_tokens": 220,
                                  "check": document["check"]}, ensure_ascii=False) + "\n")


def run(args):
    with open(args.prompts, encoding="utf-8") as lines, open(args.out, "w", encoding="utf-8") as out:
        for line in lines:
            entry = json.loads(line)
            command = [args.millrace, "run", "-m", args.model, "--temperature", "0", "--json", "--ids", "-t", str(args.threads),
                       "-n", str(entry["max_tokens"])]
            reply = subprocess.run(command, input=entry["prompt"].encode(), capture_output=True, check=True)
            answer = json.loads(reply.stdout)
            ids = answer["ids"][:-1] if answer["finish_reason"] == "stop" else answer["ids"]
            out.write(json.dumps({"ids": ids, "text": answer["text"]}, ensure_ascii=False) + "\n")


def same(args):
    with open(args.a, encoding="utf-8") as a, open(args.b, encoding="utf-8") as b:
        pairs = [(json.loads(x)["ids"], json.loads(y)["ids"]) for x, y in zip(a, b, strict=True)]
    equal = sum(x == y for x, y in pairs)
    tokens = sum(len(x) for x, _ in pairs)
    print(f"{equal} of {len(pairs)} answers have the same ids ({tokens} tokens)")
    for number, (x, y) in enumerate(pairs):
        if x != y:
            at = next((i for i, (p, q) in enumerate(zip(x, y)) if p != q), min(len(x), len(y)))
            print(f"answer {number} differs from token {at}: {x[at:at + 4]} and {y[at:at + 4]}")


def parse(text):
    try:
        return json.loads(text)
    except ValueError:
        return None


def is_right(kind, check, text, prompt):
    if kind == "extract":
        return parse(text) == json.loads(check["json"])
    if kind == "tool":
        match = re.fullmatch(r"<tool_call>\n(.*)\n</tool_call>", text.strip(), re.S)
        return bool(match) and parse(match[1]) == json.loads(check["call"])
    if kind == "no_tool":
        return text == check["text"]
    if kind == "sum":
        numbers = re.findall(r"= (-?\d+)", text)
        # The last: the steps of the working come before it.
        return bool(numbers) and int(numbers[-1]) == check["result"]
    if kind == "role":
        return text in check["among"]
    if kind in ("question", "repeat"):
        return text == check["text"]
    if kind == "request":
        # Only what the request names can be asked for; of the wish, its last word (the thing).
        wanted = [check[key] for key in ("name", "place", "who") if check[key] in prompt]
        if check["wish"] in prompt:
            wanted.append(check["wish"].split()[-1])
        return all(word in text for word in wanted)
    raise ValueError(kind)


LABELS = {"extract": "extraction: valid JSON, every fact right", "tool": "tool call: right tool, right arguments",
          "no_tool": "declines when the tool is not offered", "sum": "sums (held-out operands)",
          "role": "chat: answers with the fact of its role", "question": "question about a story", "repeat": "repeats words",
          "request": "story keeps what was asked for (person, place, wish)"}


def score(args):
    with open(args.prompts, encoding="utf-8") as lines:
        prompts = [json.loads(line) for line in lines]
    with open(args.out, encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    scores, valid = {}, {}
    for entry, text in zip(prompts, texts, strict=True):
        key = (entry["kind"], entry["lang"])
        right = is_right(entry["kind"], entry["check"], text, entry["prompt"])
        scores.setdefault(key, []).append(right)
        if entry["kind"] == "extract":
            valid.setdefault(entry["lang"], []).append(isinstance(parse(text), dict))
        if args.wrong and not right:
            print("WRONG", *key, "|", entry["prompt"][-200:], "|", text, "|", entry["check"])
    rows = {}
    for kind, label in LABELS.items():
        row = {lang: (sum(scores[kind, lang]), len(scores[kind, lang])) for lang in ("en", "zh") if (kind, lang) in scores}
        total = [sum(values) for values in zip(*row.values())]
        if total:
            rows[kind] = {"label": label, **row, "all": total}
            cells = "  ".join(f"{lang} {right}/{count}" for lang, (right, count) in row.items())
            print(f"{label:50} {total[0] / total[1]:6.1%}   {cells}")
    print(f"{'extraction: valid JSON':50} {sum(map(sum, valid.values())) / max(1, sum(map(len, valid.values()))):6.1%}")
    if args.json:
        with open(args.json, "w", encoding="utf-8") as out:
            json.dump(rows, out, ensure_ascii=False, indent=1)
    if args.stories:
        with open(args.stories, "w", encoding="utf-8") as out:
            number = {"en": 0, "zh": 0}
            for entry, text in zip(prompts, texts):
                wanted = {"en": 12, "zh": 8}[entry["lang"]]
                if entry["kind"] == "request" and number[entry["lang"]] < wanted:
                    number[entry["lang"]] += 1
                    request = entry["prompt"].split("<|im_start|>user\n")[1].split("<|im_end|>")[0]
                    out.write(f"{sum(number.values())}. *{request}*  \n   {text}\n\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("prompts")
    command.add_argument("held_out")
    command.add_argument("prompts")
    command.add_argument("--each", type=int, default=100, help="prompts of each kind and language")
    command.set_defaults(run=make_prompts)
    command = commands.add_parser("run")
    for name in ("millrace", "model", "prompts", "out"):
        command.add_argument(name)
    command.add_argument("--threads", type=int, default=1)
    command.set_defaults(run=run)
    command = commands.add_parser("same")
    command.add_argument("a")
    command.add_argument("b")
    command.set_defaults(run=same)
    command = commands.add_parser("score")
    command.add_argument("prompts")
    command.add_argument("out")
    command.add_argument("--json")
    command.add_argument("--stories")
    command.add_argument("--wrong", action="store_true", help="print wrong answers")
    command.set_defaults(run=score)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
