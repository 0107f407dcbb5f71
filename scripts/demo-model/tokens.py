#!/usr/bin/env python3
"""Trains the tokenizer on the corpus and writes what `millrace train` reads.

  tokens.py train-tokenizer CORPUS.jsonl OUTPUT_DIR     tokenizer.json (Hugging Face form) of 2560 tokens
  tokens.py encode TOKENIZER_DIR CORPUS.jsonl TOKENS.bin  the token file (format: src/compress/train/dataset.h)
  tokens.py metadata TOKENIZER_DIR OUT.json --name NAME   GGUF metadata: tokenizer, chat template, general.*

The tokenizer is a byte-level BPE with the pre-tokenising rule that GGUF calls "qwen2": digits stand alone, so that sums
are learnt digit by digit. Word marks (U+200B) of the corpus end words in training only.
Needs the `tokenizers` package.
"""
import argparse
import array
import json
import pathlib
import re
import struct

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import lexicon_en
import lexicon_zh

HERE = pathlib.Path(__file__).resolve().parent
MARK = "\u200b"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
CONTROL = 3  # of them, those that never appear as text
VOCABULARY = 2560
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def pre_tokenizer():
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def read(path, limit=None):
    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if limit is not None and number >= limit:
                return
            yield json.loads(line)["pieces"]


def train_tokenizer(args):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer()
    tokenizer.decoder = decoders.ByteLevel()

    def texts():
        for pieces in read(args.corpus, 30000):
            for text, _ in pieces:
                for special in SPECIAL:
                    text = text.replace(special, MARK)
                yield from (part for part in text.split(MARK) if part)

        # Words that fill slots: whole tokens, with and without a space before them, so that copying one is one step.
        words = [w for lexicon in (lexicon_en, lexicon_zh) for name, value in vars(lexicon).items() if name[0] != "_"
                 for w in value if isinstance(value, (list, dict)) and isinstance(w, str)]
        for word in words:
            if re.fullmatch(r"[A-Za-z]+|[\u4e00-\u9fff]{1,4}", word):
                for _ in range(1500):
                    yield word
                    if word.isascii():
                        yield " " + word

    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, special_tokens=SPECIAL, show_progress=False, max_token_length=12,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts(), trainer)
    # The trainer's words ended at the marks; the saved tokenizer's rule is the plain one.
    pathlib.Path(args.output).mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(pathlib.Path(args.output) / "tokenizer.json"))
    print(f"{tokenizer.get_vocab_size()} tokens")


def load(folder):
    return Tokenizer.from_file(str(pathlib.Path(folder) / "tokenizer.json"))


def encode(args):
    tokenizer = load(args.tokenizer)
    lengths, tokens, answers = array.array("I"), array.array("H"), bytearray()
    batch = []

    def flush():
        texts = [text.replace(MARK, "") for pieces in batch for text, _ in pieces]
        encoded = iter(tokenizer.encode_batch(texts))
        for pieces in batch:
            start = len(tokens)
            for _, answer in pieces:
                ids = next(encoded).ids
                tokens.extend(ids)
                answers.extend(bytes([answer]) * len(ids))
            lengths.append(len(tokens) - start)
        batch.clear()

    for pieces in read(args.corpus):
        batch.append(pieces)
        if len(batch) == 5000:
            flush()
    flush()
    with open(args.output, "wb") as out:
        out.write(b"MRTOKENS" + struct.pack("<4I", 1, tokenizer.get_vocab_size(), len(lengths), 0))
        out.write(lengths.tobytes() + tokens.tobytes() + bytes(answers))
    print(f"{len(lengths)} documents, {len(tokens)} tokens, longest {max(lengths)}, {sum(answers) / len(tokens):.0%} answers")


def metadata(args):
    saved = json.loads((pathlib.Path(args.tokenizer) / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = sorted(saved["model"]["vocab"].items(), key=lambda item: item[1])
    tokens = [token for token, _ in vocabulary]
    # GGUF token types: 1 normal, 3 control, 4 user defined.
    types = [(3 if index < CONTROL else 4) if index < len(SPECIAL) else 1 for index in range(len(tokens))]
    merges = [m if isinstance(m, str) else " ".join(m) for m in saved["model"]["merges"]]
    template = (HERE / "chat_template.jinja").read_text(encoding="utf-8").rstrip("\n")
    string = lambda value: {"type": "string", "value": value}
    number = lambda value: {"type": "u32", "value": value}
    entries = {
        "general.name": string(args.name),
        "general.description": string(args.description),
        "general.author": string("The Millrace project"),
        "general.license": string("apache-2.0"),
        "general.languages": {"type": "strings", "value": ["en", "zh"]},
        "llama.context_length": number(args.context),
        "tokenizer.ggml.model": string("gpt2"),
        "tokenizer.ggml.pre": string("qwen2"),
        "tokenizer.ggml.tokens": {"type": "strings", "value": tokens},
        "tokenizer.ggml.token_type": {"type": "i32s", "value": types},
        "tokenizer.ggml.merges": {"type": "strings", "value": merges},
        "tokenizer.ggml.bos_token_id": number(0),
        "tokenizer.ggml.eos_token_id": number(2),
        "tokenizer.ggml.eot_token_id": number(2),
        "tokenizer.ggml.padding_token_id": number(0),
        "tokenizer.ggml.add_bos_token": {"type": "bool", "value": False},
        "tokenizer.chat_template": string(template),
    }
    pathlib.Path(args.output).write_text(json.dumps(entries, ensure_ascii=False, indent=0), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("train-tokenizer")
    command.add_argument("corpus")
    command.add_argument("output")
    command.set_defaults(run=train_tokenizer)
    command = commands.add_parser("encode")
    command.add_argument("tokenizer")
    command.add_argument("corpus")
    command.add_argument("output")
    command.set_defaults(run=encode)
    command = commands.add_parser("metadata")
    command.add_argument("tokenizer")
    command.add_argument("output")
    command.add_argument("--name", required=True)
    command.add_argument("--description", default="Stories, questions, extraction, tools and small talk; trained from scratch by Millrace.")
    command.add_argument("--context", type=int, default=512)
    command.set_defaults(run=metadata)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
