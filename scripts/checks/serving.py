#!/usr/bin/env python3
"""What serving gains, measured in one run on this machine: `millrace serve` with one policy or option and with another,
the same load on both by `millrace bench serve`.

    serving.py --millrace build/release/millrace MODEL [--only batch,prefix,intruder,users,overhead,alone,isa]
               [--threads N] [--scale X] [--rounds N] [--serve "OPTIONS"]

  batch     16 users (96-token prompts, 48 out): one by one, static batches, the default; wanted: 3.5 times one by one
  prefix    16 users with 1,024 tokens of prompt in common: prefix cache off and on; wanted: 2.5 times
  intruder  8 running streams, a prompt of 4,000 tokens in the middle: p99 between tokens at most 2.5 times the median
  users     1, 4 and 16 users: tokens per second together, time to the first token
  overhead  4 and 16 users: share of the wall time that is not spent in the model; wanted: at most 3 %
  alone     greedy answers to 12 prompts one after the other and all at once: the same, for no company changes a bit
  isa       16 and 32 users with --isa exact and with the default, auto

--serve gives every server more options. Each figure is printed with the ratio that is wanted of it; the exit status is 1 when one is missed. --scale shortens it.
"""
import argparse
import concurrent.futures
import json
import random
import re
import shlex
import signal
import statistics
import subprocess
import sys
import urllib.request


class Server:
    def __init__(self, args, options):
        command = [args.millrace, "serve", "-m", args.model, "--port", "0", "--quiet", *options]
        command += shlex.split(args.serve)
        if args.threads:
            command += ["--threads", str(args.threads)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            found = re.search(r"is served on (http://\S+)", line)
            if found:
                self.url = found.group(1)
                return
        raise SystemExit(f"serving.py: the server did not start: {' '.join(command)}")

    def load(self, args, *options):
        command = [args.millrace, "bench", "serve", self.url, "--json", *map(str, options)]
        report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        if report["failed"]:
            raise SystemExit(f"serving.py: {report['failed']} requests failed: {report['errors']}")
        return report

    def metric(self, name):
        text = urllib.request.urlopen(self.url + "/metrics").read().decode()
        return float(re.search(rf"^{name}{{.*}} (\S+)$", text, re.M).group(1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.stderr.read()
        self.process.wait()


def show(what, report):
    print(f"  {what:<22}{report['output_tokens_per_second']:8.1f} tokens/s   first token p50 "
          f"{report['ttft']['p50']:6.2f} s   between tokens p50 {report['itl']['p50'] * 1e3:6.1f} ms, "
          f"p99 {report['itl']['p99'] * 1e3:6.1f} ms", flush=True)


def verdict(what, value, wanted, at_most=False):
    good = value <= wanted if at_most else value >= wanted
    print(f"  {what}: {value:.2f}, wanted {'at most' if at_most else 'at least'} {wanted}: "
          f"{'held' if good else 'MISSED'}", flush=True)
    return good


def users(args, count, requests):
    # Prompts of their own for every number of users: those of a load before would be found in the prefix cache.
    return ["--clients", count, "--requests", max(count, round(requests * args.scale)), "--prompt", 96, "--output", 48,
            "--seed", 100 + count]


def batch(args):
    print(f"16 users, 96-token prompts, 48 out, {args.rounds} rounds in turn")
    loads = [("one-by-one", 16), ("static", 32), ("fcfs", 48)]
    over_static, over_one = [], []
    for number in range(args.rounds):
        rate = {}
        for policy, requests in loads if number % 2 == 0 else loads[::-1]:
            with Server(args, ["--policy", policy]) as server:
                report = server.load(args, *users(args, 16, requests))
            rate[policy] = report["output_tokens_per_second"]
            show(policy, report)
        over_static.append(rate["fcfs"] / rate["static"])
        over_one.append(rate["fcfs"] / rate["one-by-one"])
    verdict("default over static, median", statistics.median(over_static), 1.0)
    return verdict("default over one by one, median", statistics.median(over_one), 3.5)


def prefix(args):
    print("16 users, 1,024 tokens in common and 32 of their own, 16 out")
    rate = {}
    for name, options in (("off", ["--no-prefix-cache"]), ("on", [])):
        with Server(args, options) as server:
            report = server.load(args, "--clients", 16, "--requests", max(16, round(48 * args.scale)), "--shared-prompt",
                                 1024, "--prompt", 32, "--output", 16)
        rate[name] = report["output_tokens_per_second"]
        show("prefix cache " + name, report)
    return verdict("on over off", rate["on"] / rate["off"], 2.5)


def intruder(args):
    print("8 running streams, 4,000 tokens of prompt after 4 s")
    with Server(args, []) as server:
        alone = server.load(args, "--clients", 8, "--requests", 8, "--prompt", 96, "--output", 150)
        report = server.load(args, "--clients", 8, "--requests", 8, "--prompt", 96, "--output", args.stream,
                             "--intruder", "4000@4")
    show("8 streams without it", alone)
    show("8 streams", report)
    beside = report["intruder"]["itl_beside"]
    print(f"  while the prompt was computed ({report['intruder']['ttft']:.1f} s): p50 {beside['p50'] * 1e3:.1f} ms, "
          f"p99 {beside['p99'] * 1e3:.1f} ms")
    # However long the streams are beside the prompt: its p99 over the median that they would have without it.
    good = verdict("p99 beside it over the median without it", beside["p99"] / alone["itl"]["p50"], 2.5, at_most=True)
    return verdict("p99 over median", report["itl"]["p99"] / report["itl"]["p50"], 2.5, at_most=True) and good


def several(args):
    print("users together, 96-token prompts, 48 out")
    good = True
    with Server(args, []) as server:
        for count, requests, wanted in ((1, 6, 45), (4, 16, 110), (16, 48, 170)):
            report = server.load(args, *users(args, count, requests))
            show(f"{count} users", report)
            good &= verdict("tokens/s", report["output_tokens_per_second"], wanted)
            if count == 16:
                good &= verdict("first token p50, s", report["ttft"]["p50"], 2.0, at_most=True)
    return good


def overhead(args):
    print("share of the wall time outside the model, 96-token prompts, 48 out")
    good = True
    with Server(args, []) as server:
        for count in (4, 16):
            before = server.metric("millrace:forward_seconds_total")
            report = server.load(args, *users(args, count, 3 * count))
            inside = server.metric("millrace:forward_seconds_total") - before
            show(f"{count} users", report)
            good &= verdict("% outside", 100 * (1 - inside / report["seconds"]), 3.0, at_most=True)
    return good


def alone(args):
    print("12 prompts of 5 to 200 random tokens, 24 tokens out, greedy")
    rng = random.Random(5)
    prompts = [[rng.randrange(100, 2000) for _ in range(rng.choice((5, 17, 40, 96, 150, 200)))] for _ in range(12)]
    with Server(args, ["--no-prefix-cache"]) as server:
        def answer(prompt):
            body = {"prompt": prompt, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
            request = urllib.request.Request(server.url + "/v1/completions", json.dumps(body).encode(),
                                             {"Content-Type": "application/json"})
            return json.load(urllib.request.urlopen(request))["choices"][0]["text"]

        one_by_one = [answer(prompt) for prompt in prompts]
        with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
            together = list(pool.map(answer, prompts))
    return verdict("the same", sum(a == b for a, b in zip(one_by_one, together)), len(prompts))


def isa(args):
    print("16 and 32 users by instruction set, 96-token prompts, 48 out")
    for name in ("exact", "auto"):
        with Server(args, ["--isa", name]) as server:
            for count in (16, 32):
                show(f"{name}, {count} users", server.load(args, *users(args, count, count)))
    return True


def main():
    parts = {"batch": batch, "prefix": prefix, "intruder": intruder, "users": several, "overhead": overhead, "alone": alone,
             "isa": isa}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--millrace", default="build/release/millrace")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--only", default="batch,prefix,intruder,users,overhead,alone")
    parser.add_argument("--serve", default="", help="more options of every server")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of requests")
    parser.add_argument("--rounds", type=int, default=3, help="of part batch; medians are taken of their ratios")
    parser.add_argument("--stream", type=int, default=1000, help="tokens of each running stream")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers end with this
    good = [parts[name](args) for name in args.only.split(",")]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
