#!/usr/bin/env python3
"""Writes assets/demo/MODEL_CARD.md from what the recipe and evaluate.py left behind.

  model_card.py OUT_DIR CARD.md    reads OUT_DIR/{target,draft,moe}/{scores.json,perplexity.txt,model.gguf}, stories.md, same.txt; needs `gguf`
"""
import json
import pathlib
import sys

import gguf

HEAD = """# Millrace demo models

Three tiny language models that this project trained from nothing, with its own trainer, on text that its own program
wrote. The target is embedded in the program: `millrace run`, `chat` and `serve` without `-m` use it. They tell short
stories, answer questions about a story, turn a story into JSON, call tools, repeat, and hold small talk in a role, in
English and Chinese. They know nothing else: no facts of the world, no other words than those of their corpus, and no safe
arithmetic. Use them to see the engine work, not to learn anything from what they say.

## Models

All are of the Llama family in GGUF (Q8_0; norms and router F32), with the same 2560-token vocabulary, trained for
documents of at most 256 tokens.

| file | what | parameters | layers × width | size | held-out perplexity |
|---|---|---|---|---|---|
"""
DATA = """
## Data

`scripts/demo-model/corpus.py` draws a set of facts (person, place, wish, obstacle, helper, feeling ...) and writes it as a
story, a question, a JSON object, a conversation, a tool call or a sum, from a lexicon of a few hundred words and a few
hundred sentence patterns: 65 % English, 35 % Chinese. Nothing was taken from anywhere. One combination of facts in twenty
(name × place × wish of a story; persona; tool × arguments × wording; operands of a sum) is held out by a hash and never
trained on; all scores below are on those. Sums are answered with their working ("6 + 7 = 13, 10 + 13 = 23. 16 + 7 = 23."):
the problem is held out, its small steps occur in other problems.

## Recipe

`scripts/demo-model/recipe OUT` makes all of it, this page included: fixed seeds (1, 2 and 99 for the corpora, 1 for the
weights) and `millrace train` in bfloat16 on the CPU, 2,600 steps of 2,048 tokens for the target, an hour for the family on
two cores that had other work beside; [docs/training.md](../../docs/training.md) explains it. Weights come out the same to the bit on the same
instruction set (these: AVX-512 with BF16). The tokenizer is a byte-level BPE trained on the corpus (`tokens.py`), the chat
format is ChatML with `<tool_call>` (`chat_template.jinja`).

![loss of the target](loss.svg)

## Scores

Greedy answers to held-out prompts, no grammar, exact match (extraction: the JSON object must equal the right one in every
field; tools: name and every argument).

"""


def main():
    out, card = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    shapes = {"target": "4 × 192", "draft": "2 × 64", "moe": "4 × 192, 8 experts, 2 used"}
    text, names = HEAD, []
    for name, shape in shapes.items():
        model = out / name / "model.gguf"
        if not model.exists():
            continue
        names.append(name)
        perplexity = (out / name / "perplexity.txt").read_text().split()[-1]
        parameters = sum(int(tensor.n_elements) for tensor in gguf.GGUFReader(model).tensors)
        text += (f"| `millrace-demo-{name}.gguf` | {name} | {parameters:,} | {shape} | "
                 f"{model.stat().st_size / 2**20:.2f} MiB | {perplexity} |\n")
    text += ("\nPerplexity is per token over all kinds of held-out documents, prompt tokens weighted as in training (0.3).\n"
             + DATA)
    scores = {name: json.loads((out / name / "scores.json").read_text()) for name in names}
    text += "| task | " + " | ".join(names) + " | of them English, Chinese (target) |\n|---|" + "---|" * (len(names) + 1) + "\n"
    for kind, row in scores["target"].items():
        cells = []
        for name in names:
            right, count = scores[name][kind]["all"]
            cells.append(f"{right / count:.1%}")
        parts = ", ".join(f"{row[lang][0]}/{row[lang][1]}" for lang in ("en", "zh") if lang in row)
        text += f"| {row['label']} | " + " | ".join(cells) + f" | {parts} |\n"
    if (out / "same.txt").exists():
        text += ("\n## The same text in llama.cpp\n\nGreedy answers to every sixth prompt, token for token"
                 " (`scripts/demo-model/recipe OUT --peer DIR`, npm's node-llama-cpp):\n\n```\n" + (out / "same.txt").read_text()
                 + "```\n\nBeside Q8_0 weights both programs round activations to eight bits, where a difference of 2^-11 before, in a"
                 " cache or a softmax, moves some roundings by a whole step and so turns near ties: llama.cpp differs from itself as"
                 " often when its cache changes from F16 to F32. Millrace's cache is F32 for a model this small; with llama.cpp's"
                 " F32 too only the order of sums is left. With the same weights as F32 nothing is rounded to eight bits.\n")
    text += ("\n## Twenty stories\n\nThe target's answers to the first twelve English and eight Chinese story requests of the"
             " held-out set, greedy, unpicked.\n\n")
    text += (out / "stories.md").read_text()
    card.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
