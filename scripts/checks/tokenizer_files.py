#!/usr/bin/env python3
"""Random tokenizer.json files on random texts, `millrace tokenize` against the `tokenizers` package: ids and decoded text.

usage: tokenizer_files.py [--count 200] [--seed 1] [--texts 6] [--millrace build/release/millrace] [--show 5]

Every file has a random model (BPE with its switches, byte-level BPE, Unigram, WordPiece, WordLevel) over a random vocabulary,
and random normalizers, pre-tokenizers, post-processors, decoders and added tokens. Truncation and padding that a file asks
for are left out on both sides, as transformers leaves them out unless a call asks for them. Left out of the comparison: the
text of an added token that the normalizer changes (the package since 0.23 writes the changed text, and no longer knows a
special token by it; Millrace, like the versions before, writes the token), and files where two such tokens become one or one becomes nothing.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "fixtures"))
from tokenizers import Tokenizer  # noqa: E402

from make_tokenizer_fixtures import FIXED, GPT4O, LLAMA3, PROSE  # noqa: E402

WORDS = PROSE.split()
SPECIALS = ["<unk>", "<s>", "</s>", "<pad>", "<mask>", "[CLS]", "[SEP]", "<|end|>"]
REGEXES = [r"\s+", r"\d", r"\p{L}+", LLAMA3, GPT4O, r"\p{N}{1,3}", r"[^\s]+", r"'s|'t", " ?\\p{P}", r"\s+(?!\S)|\s+", "[a-z]{2}", r"[\r\n]+", r"(?i)the"]


def byte_alphabet():
    plain = [b for b in range(256) if 33 <= b <= 126 or 161 <= b <= 172 or 174 <= b <= 255]
    table, extra = {b: chr(b) for b in plain}, 0
    for b in range(256):
        if b not in table:
            table[b] = chr(256 + extra)
            extra += 1
    return table


BYTES = byte_alphabet()


class Maker:
    def __init__(self, rng):
        self.rng = rng

    def maybe(self, chance=0.5):
        return self.rng.random() < chance

    def text(self):
        r = self.rng
        pieces = WORDS + FIXED + SPECIALS
        kind = r.randrange(4)
        if kind == 0:
            return " ".join(r.choice(pieces) for _ in range(r.randrange(1, 9)))
        if kind == 1:
            return "".join(r.choice(pieces) + r.choice(["", " ", "  ", "\n", "'", "1", "é"]) for _ in range(r.randrange(1, 6)))
        if kind == 2:
            ranges = [(0x20, 0x7f), (0xa1, 0x250), (0x370, 0x400), (0x5d0, 0x5ea), (0x4e00, 0x4e40), (0x3041, 0x3097), (0x300, 0x330), (0x1f600, 0x1f620), (0xac00, 0xac40)]
            return "".join(chr(r.randrange(*r.choice(ranges))) for _ in range(r.randrange(1, 30)))
        return "".join(r.choice([" ", "\n", "a", "A", "1", "'s", ".", "é", "日", "<s>", "the"]) * r.randrange(1, 5) for _ in range(8))

    def vocabulary(self, spelt):
        """Characters (bytes' characters when `spelt`), and substrings of words."""
        r = self.rng
        spell = (lambda w: "".join(BYTES[b] for b in w.encode())) if spelt else (lambda w: w)
        words = [spell(w if not self.maybe(.4) else " " + w) for w in WORDS]
        if not spelt:
            words = [w.replace(" ", "▁") if self.maybe(.7) else w for w in words]
        alphabet = sorted(set(BYTES.values()) if spelt else {c for w in words for c in w if self.maybe(.9) or c.isascii()} | {"▁"})
        return words, alphabet

    def bpe(self, spelt):
        r = self.rng
        words, vocab = self.vocabulary(spelt)
        prefix = "##" if not spelt and self.maybe(.08) else None
        suffix = "</w>" if not spelt and prefix is None and self.maybe(.08) else None
        if prefix:
            vocab += [prefix + c for c in vocab]
        if suffix:
            vocab += [c + suffix for c in vocab]
        known, merges = set(vocab), []
        for _ in range(r.randrange(20, 400)):
            word = r.choice(words)
            symbols = [(prefix if prefix and i else "") + c + (suffix if suffix and i + 1 == len(word) else "") for i, c in enumerate(word)]
            if not all(s in known for s in symbols):
                continue
            rank = {m: i for i, m in enumerate(merges)}
            while True:  # as the merges so far join it
                pairs = [(rank[p], i) for i, p in enumerate(zip(symbols, symbols[1:])) if p in rank]
                if not pairs:
                    break
                i = min(pairs)[1]
                symbols[i:i + 2] = [symbols[i] + symbols[i + 1][len(prefix or ""):]]
            if len(symbols) < 2:
                continue
            i = r.randrange(len(symbols) - 1)
            merges.append((symbols[i], symbols[i + 1]))
            joined = symbols[i] + symbols[i + 1][len(prefix or ""):]
            if joined not in known:
                known.add(joined)
                vocab.append(joined)
        fallback = not spelt and self.maybe(.5)
        if fallback:
            vocab += [f"<0x{b:02X}>" for b in range(256)]
        if self.maybe(.3):  # words that no merge makes, for ignore_merges
            vocab += [w for w in set(r.sample(words, 5)) if w not in known]
        vocab = list(dict.fromkeys(SPECIALS[:1 + r.randrange(3)] + vocab))
        return {"type": "BPE", "dropout": None, "unk_token": r.choice(["<unk>", None]) if not spelt else None, "continuing_subword_prefix": prefix,
                "end_of_word_suffix": suffix, "fuse_unk": self.maybe(), "byte_fallback": fallback, "ignore_merges": self.maybe(.3),
                "vocab": {t: i for i, t in enumerate(vocab)}, "merges": [" ".join(m) for m in merges] if self.maybe() and not any(" " in s for m in merges for s in m)
                else [list(m) for m in merges]}

    def unigram(self):
        r = self.rng
        words, alphabet = self.vocabulary(False)
        pieces = set(alphabet)
        for _ in range(r.randrange(50, 400)):
            word = r.choice(words)
            start = r.randrange(len(word))
            pieces.add(word[start:start + r.randrange(1, 8)])
        vocab = [["<unk>", 0.0], ["<s>", 0.0], ["</s>", 0.0]] + [[p, -r.uniform(2, 14)] for p in sorted(pieces)]
        fallback = self.maybe(.4)
        if fallback:
            vocab += [[f"<0x{b:02X}>", 0.0 if self.maybe(.01) else -15.0] for b in range(256)]
        return {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": fallback}

    def wordpiece(self):
        r = self.rng
        words, alphabet = self.vocabulary(False)
        pieces = set(alphabet) | {"##" + c for c in alphabet}
        for _ in range(r.randrange(50, 300)):
            word = r.choice(words)
            start = r.randrange(len(word))
            pieces.add(("##" if start else "") + word[start:start + r.randrange(1, 8)])
        return {"type": "WordPiece", "unk_token": "<unk>", "continuing_subword_prefix": "##", "max_input_chars_per_word": r.choice([100, 100, 7]),
                "vocab": {t: i for i, t in enumerate(["<unk>"] + sorted(pieces))}}

    def wordlevel(self):
        words = sorted(set(self.rng.sample(WORDS, 80)) | {"the", " ", "▁The"})
        return {"type": "WordLevel", "unk_token": "<unk>", "vocab": {t: i for i, t in enumerate(["<unk>"] + words)}}

    def pattern(self):
        r = self.rng
        return {"String": r.choice([" ", "▁", "a", "  ", "'", "the", "."])} if self.maybe() else {"Regex": r.choice(REGEXES)}

    def normalizer(self, depth=0):
        r = self.rng
        kind = r.randrange(13 if depth == 0 else 11)
        simple = ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"]
        if kind < 5:
            return {"type": r.choice(simple)}
        if kind == 5:
            return {"type": "Strip", "strip_left": self.maybe(), "strip_right": self.maybe()}
        if kind <= 7:
            return {"type": "Replace", "pattern": self.pattern(), "content": r.choice(["▁", "", " ", "x", "aé"])}
        if kind == 8:
            return {"type": "Prepend", "prepend": r.choice(["▁", "x ", "日"])}
        if kind <= 10:
            return {"type": "BertNormalizer", "clean_text": self.maybe(), "handle_chinese_chars": self.maybe(), "strip_accents": r.choice([None, True, False]), "lowercase": self.maybe()}
        return {"type": "Sequence", "normalizers": [self.normalizer(1) for _ in range(r.randrange(0, 4))]}

    def splitter(self, depth=0):
        r = self.rng
        behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
        kind = r.randrange(14 if depth == 0 else 11)
        if kind <= 2:
            return {"type": "Split", "pattern": self.pattern(), "behavior": r.choice(behaviors), "invert": self.maybe(.3)}
        if kind <= 4:
            return {"type": "Metaspace", "replacement": r.choice(["▁", "▁", "_"]), "prepend_scheme": r.choice(["always", "first", "never"]), "split": self.maybe()}
        if kind == 5:
            return {"type": "Digits", "individual_digits": self.maybe()}
        if kind == 6:
            return {"type": "Punctuation", "behavior": r.choice(behaviors)}
        if kind == 7:
            return {"type": r.choice(["Whitespace", "WhitespaceSplit", "BertPreTokenizer"])}
        if kind == 8:
            return {"type": "ByteLevel", "add_prefix_space": self.maybe(), "trim_offsets": True, "use_regex": self.maybe()}
        if kind == 9:
            return {"type": "UnicodeScripts"} if self.maybe() else {"type": "CharDelimiterSplit", "delimiter": r.choice([" ", "e", "▁"])}
        if kind == 10:
            return {"type": "FixedLength", "length": r.randrange(1, 7)}
        return {"type": "Sequence", "pretokenizers": [self.splitter(1) for _ in range(r.randrange(0, 4))]}

    def byte_level_splitter(self):
        last = {"type": "ByteLevel", "add_prefix_space": self.maybe(.3), "trim_offsets": True, "use_regex": self.maybe()}
        if self.maybe(.3):
            return last
        parts = []
        while len(parts) < 1 + self.rng.randrange(2):
            part = self.splitter(1)
            if part["type"] != "ByteLevel":
                parts.append(part)
        return {"type": "Sequence", "pretokenizers": parts + [last]}

    def decoder(self, spelt, depth=0):
        r = self.rng
        kind = r.randrange(11 if depth == 0 else 9)
        if spelt and self.maybe(.7):
            return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
        if kind == 0:
            return {"type": "Replace", "pattern": {"String": r.choice(["▁", "a", " "])}, "content": r.choice([" ", "", "xx"])}
        if kind == 1:
            return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": r.choice(["always", "first", "never"]), "split": True}
        if kind == 2:
            return {"type": "WordPiece", "prefix": "##", "cleanup": self.maybe()}
        if kind == 3:
            return {"type": "BPEDecoder", "suffix": "</w>"}
        if kind == 4:
            return {"type": "Fuse"}
        if kind == 5:
            return {"type": "Strip", "content": r.choice([" ", "▁", "a"]), "start": r.randrange(3), "stop": r.randrange(3)}
        if kind == 6:
            return {"type": "CTC", "pad_token": "<pad>", "word_delimiter_token": "|", "cleanup": self.maybe()}
        if kind <= 8:
            return {"type": "ByteFallback"}
        return {"type": "Sequence", "decoders": [self.decoder(spelt, 1) for _ in range(r.randrange(0, 5))]}

    def post_processor(self, ids, depth=0):
        r = self.rng
        kind = r.randrange(7 if depth == 0 else 5)
        a, b = r.choice(ids), r.choice(ids)
        if kind == 0:
            return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": self.maybe(), "use_regex": True}
        if kind == 1:
            return {"type": r.choice(["BertProcessing"]), "sep": list(a), "cls": list(b)}
        if kind == 2:
            return {"type": "RobertaProcessing", "sep": list(a), "cls": list(b), "trim_offsets": self.maybe(), "add_prefix_space": self.maybe()}
        if kind <= 4:
            single = [{"SpecialToken": {"id": r.choice([a[0], b[0]]), "type_id": 0}} for _ in range(r.randrange(3))]
            single.insert(r.randrange(len(single) + 1), {"Sequence": {"id": "A", "type_id": 0}})
            return {"type": "TemplateProcessing", "single": single, "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                    "special_tokens": {t: {"id": t, "ids": [i], "tokens": [t]} for t, i in (a, b)}}
        return {"type": "Sequence", "processors": [self.post_processor(ids, 1) for _ in range(r.randrange(0, 3))]}

    def added(self, size, known):
        r = self.rng
        out, taken = [], set()
        for _ in range(r.randrange(1, 7)):
            content = r.choice(SPECIALS + ["the", "wheel", " x", "▁the", "日", "1907", "HELLO", "e", "  ", "Mill", "<extra>", "ß", "ﬁ", "."])
            if content in taken:
                continue
            taken.add(content)
            special = self.maybe()
            out.append({"id": known[content] if content in known else size, "content": content, "single_word": self.maybe(.25), "lstrip": self.maybe(.25),
                        "rstrip": self.maybe(.25), "normalized": self.maybe(.4), "special": special})
            size += content not in known
        return sorted(out, key=lambda t: t["id"])

    def tokenizer(self):
        r = self.rng
        kind = r.choice(["bpe", "bpe", "spelt", "spelt", "unigram", "unigram", "wordpiece", "wordlevel"])
        model = {"bpe": lambda: self.bpe(False), "spelt": lambda: self.bpe(True), "unigram": self.unigram, "wordpiece": self.wordpiece, "wordlevel": self.wordlevel}[kind]()
        vocab = model["vocab"]
        known = {t: i for i, (t, _) in enumerate(vocab)} if isinstance(vocab, list) else vocab
        spelt = kind == "spelt"
        added = self.added(len(known), known)
        ids = [(t["content"], t["id"]) for t in added]
        return {"version": "1.0", "truncation": {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0} if self.maybe(.2) else None,
                "padding": {"strategy": {"Fixed": 40}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0, "pad_token": "<unk>"} if self.maybe(.2) else None,
                "added_tokens": added, "normalizer": self.normalizer() if self.maybe(.6) else None,
                "pre_tokenizer": (self.byte_level_splitter() if spelt else self.splitter()) if spelt or self.maybe(.75) else None,
                "post_processor": self.post_processor(ids) if self.maybe(.7) else None, "decoder": self.decoder(spelt) if self.maybe(.85) else None, "model": model}


def run(binary, folder, arguments, data):
    return subprocess.run([binary, "tokenize", "-m", folder, *arguments], input=data, capture_output=True, timeout=60)


def check(binary, data, texts):
    """Differences as texts; None when the package itself refuses the file."""
    source = json.dumps(data, ensure_ascii=False)
    try:
        reference = Tokenizer.from_str(source)
    except Exception:  # noqa: BLE001
        return None
    reference.no_truncation()
    reference.no_padding()
    normal = lambda text: reference.normalizer.normalize_str(text) if reference.normalizer else text
    changed = {t["id"]: normal(t["content"]) for t in data["added_tokens"] if t["normalized"] and normal(t["content"]) != t["content"]}
    contents = [changed.get(t["id"], t["content"]) for t in data["added_tokens"] if t["normalized"]]
    if len(set(contents)) != len(contents) or "" in contents:
        return None
    found, done = [], 0
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "tokenizer.json").write_text(source, encoding="utf-8")
        for text in texts:
            try:
                expected = reference.encode(text).ids
            except BaseException as e:  # noqa: BLE001  a word-level model without its unknown token, or a panic
                if isinstance(e, KeyboardInterrupt):
                    raise
                continue
            done += 1
            got = run(binary, folder, ["--ids"], text.encode())
            ids = got.stdout.decode().split()
            if got.returncode != 0 or ids != [str(i) for i in expected]:
                found.append(f"text {text!r}\n  expected {expected}\n  got      {[int(i) for i in ids]} {got.stderr.decode().strip()}")
                continue
            for keep in (True, False) if not set(expected) & set(changed) else ():
                try:
                    wanted = reference.decode(expected, skip_special_tokens=not keep)
                except BaseException as e:  # noqa: BLE001  it panics on some empty tokens
                    if isinstance(e, KeyboardInterrupt):
                        raise
                    continue
                back = run(binary, folder, ["--decode"] + ([] if keep else ["--no-special"]), " ".join(ids).encode())
                if back.returncode != 0 or back.stdout.decode("utf-8", "replace") != wanted:
                    found.append(f"ids {expected} of {text!r}, special tokens {'kept' if keep else 'left out'}\n  expected {wanted!r}\n  got      {back.stdout!r} {back.stderr.decode().strip()}")
    return found, done


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="tokenizers")
    parser.add_argument("--texts", type=int, default=6, help="texts for each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--millrace", default=str(ROOT / "build/release/millrace"))
    parser.add_argument("--show", type=int, default=5)
    options = parser.parse_args()
    print(f"seed {options.seed}")
    maker = Maker(random.Random(options.seed))
    cases = [(maker.tokenizer(), [maker.text() for _ in range(options.texts)]) for _ in range(options.count)]
    files = texts = bad = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for (data, _), result in zip(cases, pool.map(lambda c: check(options.millrace, *c), cases)):
            if result is None:
                continue
            found, done = result
            files += 1
            texts += done
            bad += bool(found)
            if found and bad <= options.show:
                small = {k: v for k, v in data.items() if k != "model"} | {"model": {k: v for k, v in data["model"].items() if k not in ("vocab", "merges")}}
                print("---", json.dumps(small, ensure_ascii=False), *found[:2], sep="\n")
    print(f"{files} tokenizers, {texts} texts: {bad} tokenizers differ")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
