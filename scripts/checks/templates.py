#!/usr/bin/env python3
"""Random chat templates, rendered by `millrace render` and by Jinja2 as transformers configures it, byte for byte.

usage: templates.py [--count 2000] [--seed 1] [--millrace build/release/millrace] [--show 10]

A grammar makes whole templates: text with every kind of white-space control, loops (else, recursive, filtered, unpacking,
break, continue), macros (defaults, varargs, kwargs, caller), call, set, filter, with and generation blocks, namespaces,
and expressions over all filters, tests, methods and operators. What Jinja2 renders must come out the same; what it refuses
must be refused. Refusals at load of what docs/models.md lists are counted apart. Needs jinja2 and transformers.
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
from jinja_reference import NOW, render  # noqa: E402

CONTEXT = {
    "messages": [
        {"role": "system", "content": "You are <b>helpful</b> & brief.\n"},
        {"role": "user", "content": "  Grüße, 世界!  What's 2+2?\n\nSecond line"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 2, "b": 2.5, "s": "é\"\\"}}}]},
        {"role": "tool", "tool_call_id": "c1", "name": "add", "content": "{\"r\": 4.5}"},
        {"role": "assistant", "content": "<think>hm\n</think>\nIt is 4.5."},
        {"role": "user", "content": [{"type": "text", "text": "and now?"}, {"type": "image"}]}],
    "tools": [{"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": {
        "type": "object", "properties": {"a": {"type": "number"}, "b": {"type": ["number", "null"]}}, "required": ["a"]}}}],
    "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": True, "empty": "", "no": None, "t": True, "fa": False,
    "n": 7, "neg": -3, "z": 0, "f": 2.5, "small": 1e-7, "s": "Hello, World", "uni": "Grüße, 世界 🌍! ß", "html": "<p>a &amp; b</p> <!-- c --> <i>d</i>",
    "lines": "one\ntwo\n\nthree  \n  four five six seven eight", "li": [3, 1, 2], "words": ["banana", "Apple", "cherry", "apple"],
    "nested": [[1, 2], [3], []], "d": {"b": 1, "a": 2, "C": 3}, "deep": {"x": {"y": {"z": "found"}}, "items": "shadow", "list": [1, {"k": "v"}]},
    "users": [{"name": "Ann", "age": 30, "tags": ["x", "y"]}, {"name": "bob", "age": 25, "tags": []}, {"name": "Cid", "age": 30}],
    "long": "The quick brown fox jumps over the lazy-dog and an extraordinarily-long compoundword of unusualproportions, twice.",
    "num": "42", "fl": "42.9", "quote": "it's \"quoted\" \\ back"}

STRINGS = ["s", "uni", "lines", "html", "long", "num", "fl", "quote", "empty", "bos_token", "messages[1].content", "messages[4]['content']",
           "'a,b,c'", "'x y  z'", "\"it's\"", "'%s-%s'", "'{}:{!r:>4}'", "'\\n'", "'<think>'", "messages[0].role", "'ÀÉ straße'", "s ~ n", "'ab' 'cd'"]
NUMBERS = ["n", "neg", "z", "f", "small", "0", "1", "3", "-2", "2.5", "10", "1e3", "li[0]", "d.a", "(li | length)", "loop.index", "loop.index0", "ns.i"]
LISTS = ["li", "words", "nested", "users", "messages", "tools", "[1, 'b', none]", "(1, 2)", "[]", "range(3)", "range(1, 8, 3)", "d.items()", "d.keys()",
         "deep.list", "messages[5].content", "s.split(', ')", "lines.splitlines()", "users | map(attribute='name') | list", "[li, words]", "messages[1:]",
         "messages[::-1]", "d | dictsort", "words | sort", "words | unique | list", "li | batch(2) | list"]
DICTS = ["d", "deep", "users[0]", "messages[2]", "messages[2].tool_calls[0].function.arguments", "tools[0].function", "{}", "{'k': n, 2: s}", "dict(a=1, b=s)"]
OTHERS = ["no", "t", "fa", "nope", "nope.x", "none", "true", "false", "True", "None", "m1", "caller", "loop", "x", "y", "ns", "ns.s", "ns.l", "b1", "varargs", "kwargs",
          "messages", "d.nope", "users[2].tags", "users[9]", "loop.first", "loop.last", "loop.previtem", "loop.nextitem", "loop.length", "loop.revindex", "loop.depth"]

STRING_FILTERS = ["upper", "lower", "capitalize", "title", "trim", "trim('H')", "center(15)", "replace('a', 'b')", "replace('l', '', 1)", "indent", "indent(2, true)",
                  "indent(width=3, blank=true)", "indent('> ')", "truncate(9)", "truncate(9, true, '!')", "truncate(12, leeway=0)", "wordcount", "urlencode",
                  "e", "escape", "forceescape", "safe", "string", "length", "list", "reverse", "first", "last", "int", "int(5)", "int(0, 16)", "float", "tojson",
                  "striptags", "wordwrap(10)", "wordwrap(12, false)", "wordwrap(9, true, '|')", "wordwrap(20, break_on_hyphens=false)", "wordwrap", "pprint",
                  "default('q')", "d('q', true)", "format(1, 'z')", "count", "select('in', 'aeo') | join", "map('upper') | join('.')", "batch(4) | list", "sort | join", "unique | join",
                  "filesizeformat", "min", "max", "groupby(0) | list", "xmlattr", "attr('upper')", "tojson(indent=2)", "tojson(ensure_ascii=true)"]
NUMBER_FILTERS = ["abs", "round", "round(1)", "round(1, 'floor')", "round(-1)", "round(method='ceil')", "int", "float", "string", "tojson", "filesizeformat",
                  "filesizeformat(true)", "default(9)", "pprint", "abs | string", "wordcount", "list", "length"]
LIST_FILTERS = ["length", "count", "first", "last", "join", "join(', ')", "join('-', attribute='name')", "list", "reverse | list", "sort | list", "sort(reverse=true) | list",
                "sort(attribute='age') | list", "sort(attribute='age,name', reverse=true) | list", "sort(case_sensitive=true) | list", "unique | list", "unique(true) | list",
                "unique(attribute='age') | list", "min", "max", "max(attribute='age')", "min(case_sensitive=true)", "sum", "sum(attribute='age')", "sum(start=10)",
                "map(attribute='role') | list", "map(attribute='name', default='?') | list", "map('length') | list", "map('string') | join(',')", "map('upper') | join(',')",
                "map('default', 'w') | list", "map('replace', 'a', 'o') | list", "select | list", "select('string') | list", "reject('none') | list", "select('gt', 1) | list",
                "selectattr('name') | list", "selectattr('age', 'ge', 30) | list", "selectattr('role', 'equalto', 'user') | list", "selectattr('role', 'in', ['user', 'tool']) | list",
                "rejectattr('tags') | list", "rejectattr('role', 'eq', 'user') | map(attribute='role') | list", "selectattr('tool_calls', 'defined') | list", "batch(2) | list",
                "batch(2, 'f') | list", "slice(2) | list", "slice(3, 'f') | list", "groupby('age') | list", "groupby('age', default=1) | list",
                "groupby('role') | map(attribute='grouper') | list", "tojson", "tojson(indent=2)", "tojson(indent=4, separators=(',', ': '))", "tojson(sort_keys=true)", "pprint", "string",
                "items | list", "dictsort", "wordcount", "d([])", "e", "attr('append')"]
DICT_FILTERS = ["items | list", "dictsort", "dictsort(true)", "dictsort(by='value')", "dictsort(reverse=true)", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "tojson(indent=1, ensure_ascii=true)",
                "list", "length", "join(',')", "first", "last", "xmlattr", "urlencode", "pprint", "string", "map('upper') | list", "sum", "d({})", "attr('items')", "min", "sort | list"]
METHODS = ["upper()", "lower()", "strip()", "lstrip('Hh ')", "rstrip('\\n')", "split()", "split(',')", "split('</think>')[-1]", "split('l', 1)", "rsplit('l', 1)", "split(maxsplit=1)",
           "splitlines()", "splitlines(true)", "startswith('H')", "startswith(('H', 'G'))", "endswith('d')", "startswith('e', 1)", "find('o')", "rfind('o', 2)", "index('l')", "count('l')", "replace('l', 'L')",
           "replace('l', 'L', 1)", "title()", "capitalize()", "swapcase()", "isalpha()", "isdigit()", "isupper()", "islower()", "isspace()", "istitle()", "isalnum()", "partition(',')",
           "rpartition('l')", "zfill(6)", "ljust(8)", "rjust(8, '.')", "center(9, '*')", "join(words)", "format(1, 'b')", "format(*li)", "format(n, x=2)", "casefold()", "removeprefix('He')",
           "removesuffix('ld')", "expandtabs(3)", "isidentifier()", "isnumeric()", "isascii()", "isprintable()"]
DICT_METHODS = ["items()", "keys()", "values()", "get('a')", "get('zz', 0)", "get('name', 'w')", "copy()", "pop('a')", "update({})", "items() | list", "values() | list", "keys() | list"]
LIST_METHODS = ["count(1)", "index(1)", "append(1)", "copy()", "pop()", "__len__()", "index('zz')"]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "true", "false", "mapping", "sequence", "iterable", "callable", "odd", "even",
         "divisibleby(3)", "divisibleby 2", "eq(1)", "equalto 'a'", "ne 'a'", "lt 3", "gt 1", "ge 2", "in li", "in s", "in ['user', none]", "sameas none", "sameas true", "lower", "upper", "escaped",
         "filter", "test", "== 1", "lessthan 4", "greaterthan(1)"]
GLOBALS = ["range(n)", "range(2, 5) | list", "namespace(a=1).a", "dict(a=1) | tojson", "strftime_now('%d %B %Y, %H:%M')", "strftime_now('%Y-%m-%d %j %a %p %I')", "cycler('a', 'b').next()", "joiner(', ')()",
           "raise_exception('no: ' ~ n)", "range(9)[2:5]", "range(9)[::-2]", "ns"]
SUBSCRIPTS = ["[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "[::2]", "[1:3]", "[-2:]", "['a']", "['role']", "['content']", "[n]", "[9]", "[:2]", ".role", ".content", ".a", ".name", ".0", ".x.y", ".items", ".nope", "['items']"]
BINARY = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


class Maker:
    def __init__(self, rng):
        self.rng = rng

    def pick(self, *lists):
        return self.rng.choice(self.rng.choice(lists))

    def atom(self):
        return self.pick(STRINGS, STRINGS, NUMBERS, LISTS, DICTS, OTHERS)

    def expression(self, depth):
        r = self.rng
        sub = lambda: self.expression(depth - 1)
        kind = r.randrange(17) if depth > 0 else r.randrange(4)
        if kind <= 2:
            return self.atom()
        if kind == 3:
            return f"{self.pick(STRINGS)} | {r.choice(STRING_FILTERS)}"
        if kind == 4:
            return f"{self.pick(LISTS)} | {r.choice(LIST_FILTERS)}"
        if kind == 5:
            return f"{self.pick(DICTS)} | {r.choice(DICT_FILTERS)}" if r.random() < .6 else f"({self.pick(NUMBERS)}) | {r.choice(NUMBER_FILTERS)}"
        if kind == 6:
            return f"({self.pick(STRINGS)}).{r.choice(METHODS)}"
        if kind == 7:
            return f"({self.pick(DICTS)}).{r.choice(DICT_METHODS)}" if r.random() < .7 else f"({self.pick(LISTS)}).{r.choice(LIST_METHODS)}"
        if kind == 8:
            return f"({sub()}) | {self.pick(STRING_FILTERS, LIST_FILTERS, DICT_FILTERS, NUMBER_FILTERS)}"
        if kind == 9:
            return f"({sub()} {r.choice(BINARY)} {sub()})"
        if kind == 10:
            return f"{self.pick(NUMBERS)} {r.choice(BINARY)} {self.pick(NUMBERS)} {r.choice(BINARY)} {sub()}"
        if kind == 11:
            return f"({sub()}) is {r.choice(['', 'not '])}{r.choice(TESTS)}"
        if kind == 12:
            return f"({sub()} if {sub()}{' else ' + sub() if r.random() < .8 else ''})"
        if kind == 13:
            return r.choice(["not {}", "-{}", "[{}]", "({},)", "{{'k': {}}}", "[{}, 1]", "+{}", "not ({})", "({})"]).format(sub())
        if kind == 14:
            # Jinja2 folds slices of constants, with other errors than those of variables.
            chosen = r.choice(SUBSCRIPTS)
            return f"({self.pick(STRINGS, LISTS) if ':' in chosen else sub()}){chosen}"
        if kind == 15:
            return r.choice(GLOBALS)
        return f"{r.choice(['m1', 'm2', 'm3', 'nope'])}({r.choice(['', sub(), sub() + ', y=' + sub(), 'x=' + sub(), '1, 2, 3', '*li', '**d', sub() + ', q=1'])})"

    def space(self):
        return self.rng.choice(["", " ", "\n", "  ", "\n  ", "\n\n", "\t", "x", "x ", " x\n", "\r\n", "a\n   ", "<|im_start|>", "{ ", "} ", "# %"])

    def tag(self, body):
        r = self.rng
        return "{%" + r.choice(["", "", "", "-", "-", "+"]) + " " + body + " " + r.choice(["", "", "", "-", "-", "+"]) + "%}"

    def block(self, depth, loop=False):
        return "".join(self.statement(depth, loop) for _ in range(self.rng.randrange(1, 4)))

    def names(self):
        return self.rng.choice(["x", "x", "x", "y", "x, y", "(x, y)", "message"])

    def for_block(self, depth):
        r = self.rng
        recursive = r.random() < .2
        head = f"for {self.names()} in {self.pick(LISTS) if r.random() < .8 else self.expression(1)}"
        if r.random() < .25:
            head += f" if {self.expression(1)}"
        body = self.block(depth - 1, True)
        if recursive:
            head += " recursive"
            body += "{% if loop.depth < 3 %}{{ loop(" + r.choice(["[1, 2]", "nested", "li", "x"]) + ") }}{% endif %}"
        otherwise = self.tag("else") + self.block(depth - 1) if r.random() < .3 else ""
        return self.tag(head) + body + otherwise + self.tag("endfor")

    def statement(self, depth, loop=False):
        r = self.rng
        kind = r.randrange(20) if depth > 0 else r.randrange(6)
        e = lambda: self.expression(r.randrange(0, 3))
        left = self.space()
        if kind <= 3:
            return left + "{{" + r.choice(["", "-"]) + " " + e() + " " + r.choice(["", "-"]) + "}}" + self.space()
        if kind == 4:
            target = r.choice(["x", "y", "b1", "ns.i", "ns.s", "x, y", "messages"])
            return left + self.tag(f"set {target} = {e()}{', ' + e() if target == 'x, y' else ''}") + self.space()
        if kind == 5:
            return left + r.choice(["{# c #}", "{#- c -#}", "{#- #}", "{% raw %} {{ r }} {% endraw %}", "{%- raw -%} {% r %} {%- endraw -%}", "{% set ns = namespace(i=0, s='', l=[]) %}"]) + self.space()
        body = lambda: self.block(depth - 1, loop)
        if kind <= 8:
            text = self.tag(f"if {e()}") + body()
            for _ in range(r.choice([0, 0, 1])):
                text += self.tag(f"elif {e()}") + body()
            if r.random() < .5:
                text += self.tag("else") + body()
            return left + text + self.tag("endif") + self.space()
        if kind <= 12:
            return left + self.for_block(depth) + self.space()
        if kind == 13:
            parameters = r.choice(["", "x", "x, y=2", "x='d', y=x", "x, y=none", "caller=none", "x, y=x|upper"])
            use = r.choice(["", "{{ varargs }}", "{{ kwargs }}", "{{ caller() }}", "{{ caller(1) if caller }}", "{{ m1.name }}{{ m1.arguments }}"])
            return left + self.tag(f"macro {r.choice(['m1', 'm2', 'm3'])}({parameters})") + body() + use + self.tag("endmacro") + self.space()
        if kind == 14:
            caller = r.choice(["", "(x)", "(x, y=1)"])
            return left + self.tag(f"call{caller} {r.choice(['m1', 'm2'])}({r.choice(['', e()])})") + body() + self.tag("endcall") + self.space()
        if kind == 15:
            return left + self.tag(r.choice(["set b1", "set b1 | upper", "set b1 | trim | length", "set ns.s"])) + body() + self.tag("endset") + "[{{ b1 }}]"
        if kind == 16:
            return left + self.tag(f"filter {r.choice(['upper', 'trim', 'indent(2)', 'replace(1, 2)', 'e | upper', 'wordwrap(9)', 'striptags', 'tojson'])}") + body() + self.tag("endfilter")
        if kind == 17:
            return left + self.tag(r.choice([f"with x = {e()}", f"with x = 1, y = x", "with"])) + body() + self.tag("endwith") + self.space()
        if kind == 18:
            return left + self.tag(r.choice(["generation", "block b scoped", "autoescape false"])) + body() + "@end@"
        return left + (self.tag("if " + e()) + self.tag(r.choice(["break", "continue"])) + self.tag("endif") if loop else "{{ loop.index }}")

    def template(self):
        start = "{% set ns = namespace(i=0, s='', l=[]) %}{% set x = 1 %}" if self.rng.random() < .8 else ""
        if self.rng.random() < .6:
            start += "{% macro m1(x, y=2) %}<{{ x }}|{{ y }}>{% endmacro %}{% macro m2() %}({{ caller() if caller }}){{ varargs }}{{ kwargs }}{% endmacro %}"
        text = start + self.block(self.rng.randrange(1, 4))
        # Blocks must have names of their own and the right end.
        while "@end@" in text:
            before, after = text.split("@end@", 1)
            at = max(before.rfind(k) for k in ("generation ", "block b ", "autoescape "))
            word = next(k for k in ("generation", "block", "autoescape") if before.startswith(k, at))
            if word == "block":
                before = before[:at] + f"block b{text.count('@end@')} " + before[at + 8:]
            else:
                before = before[:at] + word.upper() + before[at + len(word):]
            text = before + "{% end" + word + " %}" + after
        return text.replace("GENERATION ", "generation ").replace("AUTOESCAPE ", "autoescape ")


def run(binary, folder, index, source):
    path = pathlib.Path(folder) / f"{index}.jinja"
    path.write_bytes(source.encode())
    done = subprocess.run([binary, "render", "-m", path, "--now", NOW.strftime("%Y-%m-%dT%H:%M")], input=json.dumps(CONTEXT).encode(),
                          capture_output=True, timeout=60)
    path.unlink()
    return done.returncode, done.stdout, done.stderr.decode(errors="replace").strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--millrace", default=str(ROOT / "build/release/millrace"))
    parser.add_argument("--show", type=int, default=10, help="differences to print")
    options = parser.parse_args()
    rng = random.Random(options.seed)
    print(f"seed {options.seed}")
    cases = []
    while len(cases) < options.count:
        source = Maker(rng).template()
        expected = render(source, CONTEXT)
        # Addresses cannot be the same; of those that Jinja2 refuses a fifth is enough.
        if "0x7" in expected.get("output", "") or ("error" in expected and rng.random() < .8):
            continue
        cases.append((source, expected))
    same = refused = unsupported = different = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda c: run(options.millrace, folder, c[0], c[1][0]), enumerate(cases))
        for (source, expected), (status, out, err) in zip(cases, results):
            if "output" in expected and status == 0 and out == expected["output"].encode():
                same += 1
            elif "error" in expected and status == 1:
                refused += 1
            elif "output" in expected and status == 1 and "not supported" in err:
                unsupported += 1
            else:
                different += 1
                if different <= options.show:
                    print(f"--- template\n{source}\n--- Jinja2\n{expected}\n--- Millrace ({status})\n{out!r} {err}")
    print(f"{len(cases)} templates: {same} the same, {refused} refused by both, {unsupported} refused at load as documented, {different} different")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
