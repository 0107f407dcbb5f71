"""Texts to try a grammar with, and what Millrace says of them: what the comparisons with other parsers share."""
import json
import os
import subprocess


def changed(random_, text, alphabet):
    chars = list(text)
    for _ in range(random_.randrange(1, 3)):
        kind, at = random_.randrange(4), random_.randrange(len(chars) + 1)
        if kind == 0:
            chars.insert(at, random_.choice(alphabet))
        elif chars and kind == 1:
            del chars[min(at, len(chars) - 1)]
        elif chars and kind == 2:
            chars[min(at, len(chars) - 1)] = random_.choice(alphabet)
        elif chars:
            a, b = random_.randrange(len(chars)), random_.randrange(len(chars))
            chars[a], chars[b] = chars[b], chars[a]
    return "".join(chars)


def verdicts(args, option, grammar, folder, random_):
    """(texts, whether Millrace takes each): samples of the grammar, the empty text, and samples with a few characters changed;
    or a sentence where Millrace refuses the grammar. `option` names the front end, as --gbnf; args has millrace, seed, samples."""
    grammar_file, text_file = os.path.join(folder, "grammar"), os.path.join(folder, "texts")
    with open(grammar_file, "w", encoding="utf-8") as f:
        f.write(grammar)
    command = [args.millrace, "grammar"]
    run = subprocess.run(command + ["sample", option, grammar_file, "--seed", str(args.seed), "--count", str(args.samples),
                                    "--max-tokens", "25"], capture_output=True, text=True)
    if run.returncode:
        return run.stderr.strip()
    samples = [json.loads(line) for line in run.stdout.splitlines()]
    alphabet = sorted(set("".join(samples) + "ab01 ,\n\"\\é*/#-"))
    texts = samples + [""] + [changed(random_, s, alphabet) for s in samples for _ in range(3)]
    with open(text_file, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(t) + "\n" for t in texts)
    run = subprocess.run(command + ["check", option, grammar_file, "--instances", text_file], capture_output=True, text=True,
                         check=True)
    return texts, [json.loads(line)["accepted"] for line in run.stdout.splitlines()]
