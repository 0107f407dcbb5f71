#!/usr/bin/env python3
"""What structured output costs and jump-forward gains: `millrace serve` under the same load, free and held to a schema.

    structured.py --millrace build/release/millrace MODEL [--users 16] [--output 48] [--rounds 2] [--threads N]

Every user asks for answers of equally many tokens (max_tokens, ignore_eos; the schemas' values are longer than that):

  free       no constraint
  schema     an array of records, white space as JSON allows it
  compact    the same records with long names and without white space, where what is forced is jumped over

The kinds take turns in every round, each round beginning with another, with prompts that no other run had. Printed, as
medians over the rounds: tokens per second; its ratio to the free text of the same round, with the smallest and the largest;
the share of tokens that were jumped; the mean time of a mask; and the steps that the engine took.
"""
import argparse
import json
import random
import re
import statistics
import subprocess
import threading
import time
import urllib.request

SHORT = {"id": {"type": "integer", "minimum": 0}, "name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}},
         "active": {"type": "boolean"}, "score": {"type": "number"}}
LONG = {"shipping_address_country_code": {"enum": ["DE", "FR", "SE"]}, "is_preferred_customer_account": {"type": "boolean"},
        "number_of_previous_orders": {"type": "integer", "minimum": 0, "maximum": 999},
        "preferred_contact_method": {"enum": ["electronic mail", "telephone"]},
        "customer_display_name": {"type": "string", "maxLength": 12}}


def records(properties):
    return {"type": "array", "minItems": 1000, "items": {"type": "object", "properties": properties,
                                                         "required": list(properties), "additionalProperties": False}}


KINDS = {"free": {}, "schema": {"guided_json": records(SHORT)},
         "compact": {"guided_json": records(LONG), "guided_whitespace_pattern": ""}}
METRICS = ("millrace:jumped_tokens_total", "millrace:grammar_masks_total", "millrace:grammar_mask_seconds_total", "millrace:steps_total")


def metrics(url):
    text = urllib.request.urlopen(url + "/metrics").read().decode()
    return [sum(float(v) for v in re.findall(rf"(?m)^{name}(?:{{.*}})? (\S+)$", text)) for name in METRICS]


def ask(url, args, kind, seed, counts):
    draw = random.Random(seed)
    body = {"prompt": [draw.randrange(100, 250) for _ in range(args.prompt)], "max_tokens": args.output, "ignore_eos": True,
            "seed": seed, **KINDS[kind]}
    request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
    counts.append(json.load(urllib.request.urlopen(request, timeout=600))["usage"]["completion_tokens"])


def load(url, args, kind, seed):
    counts = []
    users = [threading.Thread(target=ask, args=(url, args, kind, seed + i, counts)) for i in range(args.users)]
    before, begin = metrics(url), time.monotonic()
    for user in users:
        user.start()
    for user in users:
        user.join()
    seconds = time.monotonic() - begin
    if counts != [args.output] * args.users:
        raise SystemExit(f"structured.py: {kind}: {args.users} answers of {args.output} tokens were asked for, not {counts}")
    return [sum(counts), seconds] + [b - a for a, b in zip(before, metrics(url))]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--millrace", default="build/release/millrace")
    parser.add_argument("--users", type=int, default=16)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--output", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    command = [args.millrace, "serve", "-m", args.model, "--port", "0", "--quiet"]
    command += ["--threads", str(args.threads)] if args.threads else []
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        url = next((m.group(1) for m in (re.search(r"is served on (http://\S+)", line) for line in server.stderr) if m), None)
        if url is None:
            raise SystemExit(f"structured.py: the server did not start: {' '.join(command)}")
        threading.Thread(target=server.stderr.read, daemon=True).start()
        for kind in KINDS:  # grammars compiled, masks of their first tokens made
            short = argparse.Namespace(**{**vars(args), "users": 2, "output": 2})
            load(url, short, kind, 1)
        kinds, runs = list(KINDS), {kind: [] for kind in KINDS}
        for turn in range(args.rounds):
            for i in range(len(kinds)):
                kind = kinds[(turn + i) % len(kinds)]
                runs[kind].append(load(url, args, kind, 1000 * (len(kinds) * turn + i + 1)))
        speeds = {kind: [tokens / seconds for tokens, seconds, *_ in runs[kind]] for kind in kinds}
        for kind in kinds:
            ratios = sorted(own / free for own, free in zip(speeds[kind], speeds["free"]))
            tokens, _, jumped, masks, mask_seconds, steps = (sum(column) for column in zip(*runs[kind]))
            print(f"{kind:<9}{statistics.median(speeds[kind]):8.1f} tokens/s  {statistics.median(ratios):5.2f} of free "
                  f"({ratios[0]:.2f} to {ratios[-1]:.2f})  {jumped / tokens:5.1%} jumped"
                  f"  {1e6 * mask_seconds / max(masks, 1):6.0f} µs a mask  {steps / args.rounds:5.0f} steps", flush=True)
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    main()
