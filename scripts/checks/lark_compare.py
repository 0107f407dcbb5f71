#!/usr/bin/env python3
"""Compares the Lark-like front end with the `lark` package: which texts a grammar takes.

Texts are sampled from each grammar by `millrace grammar sample` (all must parse) and changed at random; both must give the
same verdict. Lark runs its Earley parser with the lexer that tries every cut into terminals, since a grammar here is the set
of its texts, whatever a lexer would prefer.

usage: lark_compare.py --millrace PATH [--samples 40] [--seed 1]
"""
import argparse
import random
import sys
import tempfile

import grammar_texts
import lark

GRAMMARS = [
    'start: "a" | "b"',
    'start: "a"+ "b"* "c"?',
    'start: ("x" | "y" "z")~2..3 ["w"]',
    'start: item~3\nitem: "0".."9" | "a".."f"',
    'start: "abc"i /[0-9]+/i',
    'start: WORD ("," WORD)*\nWORD: /[a-z]+/\n%ignore " "',
    'start: expr\n?expr: term (("+" | "-") term)*\n?term: atom (("*" | "/") atom)*\n?atom: NUMBER | "(" expr ")"\n'
    '%import common.NUMBER\n%import common.WS_INLINE\n%ignore WS_INLINE',
    'start: pair*\npair: CNAME "=" value\nvalue: SIGNED_INT | ESCAPED_STRING\n%import common (CNAME, SIGNED_INT)\n'
    '%import common.ESCAPED_STRING\n%import common.WS\n%ignore WS',
    '?start: value\n?value: object | array | STRING | NUM | "true" -> yes | "false" -> no | "null" -> none\n'
    'array: "[" [value ("," value)*] "]"\nobject: "{" [pair ("," pair)*] "}"\npair: STRING ":" value\n'
    '%import common.ESCAPED_STRING -> STRING\n%import common.SIGNED_NUMBER -> NUM\n%import common.WS\n%ignore WS',
    'start: (KEY | NAME)+\nKEY.2: "if" | "else"\nNAME.-1: /[a-z]+/\n%ignore /[ ;]/',
    '!start: _sep "x" _sep\n_sep: "," | ";" |',
    'start: A B? C\nA: "a" "b"*\nB: A "!" | "q"\nC: /x{2,3}|y/',
    'start: "\\n" "\\t"? "\\\\" "\\"" "\\u00e9" "\\x41"',
    'start: line+\nline: INT ":" WORD NEWLINE\n%import common.INT\n%import common.WORD\n%import common.NEWLINE',
    'start: "é".."ü" /[α-ω]+/ "漢"?',
    'start: list\nlist: "(" list* ")" | ATOM\nATOM: /[a-z0-9]/+\n%ignore " "\n%ignore /#[^\\n]*\\n/',
    '// a comment\nstart: a // another\n     | b\na: "a" a | "a"\nb: b "b" | "b"',
    'start: FLOAT ";" DECIMAL ";" SIGNED_FLOAT\n%import common (FLOAT, DECIMAL, SIGNED_FLOAT)',
    'start: "select" cols "from" CNAME [where] ";"\ncols: "*" | CNAME ("," CNAME)*\nwhere: "where" CNAME ("=" | "<") INT\n'
    '%import common.CNAME\n%import common.INT\n%import common.WS\n%ignore WS',
    'start: [A] [B] [C]\nA: "1"\nB: "2"\nC: "3"',
    'start: /a.c/ /[0-9][a-z_] /',
    'start: s\ns: "a" s "b" | "a" "b"',
    'start: C_COMMENT | CPP_COMMENT | SH_COMMENT | SQL_COMMENT\n'
    '%import common (C_COMMENT, CPP_COMMENT, SH_COMMENT, SQL_COMMENT)',
    'start: _A~0..2 (_B | "z")\n_A: "p" | "q"\n_B: _A "r"',
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", required=True)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    random_ = random.Random(args.seed)
    wrong = texts_seen = taken = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, grammar in enumerate(GRAMMARS, 1):
            found = grammar_texts.verdicts(args, "--lark", grammar, folder, random_)
            if isinstance(found, str):
                wrong += 1
                print(f"grammar {number}: {found}")
                continue
            texts, ours = found
            reference = lark.Lark(grammar, parser="earley", lexer="dynamic_complete")
            for text, accepted in zip(texts, ours):
                try:
                    reference.parse(text)
                    theirs = True
                except lark.exceptions.LarkError:
                    theirs = False
                texts_seen += 1
                taken += theirs
                if accepted != theirs:
                    wrong += 1
                    print(f"grammar {number}: {text!r} is {'taken' if accepted else 'refused'}, unlike by lark: "
                          f"{grammar[:100]!r}")
    print(f"{len(GRAMMARS)} grammars, {texts_seen} texts ({taken} in the language): {wrong} differences")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
