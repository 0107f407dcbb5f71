#!/usr/bin/env python3
"""Writes the corpus of the demo models: stories, questions, extraction, chat, tools and sums in English and Chinese.

  corpus.py --documents 150000 --seed 1 --split train > train.jsonl

One JSON object a line: {"kind", "lang", "pieces": [[text, answer], ...], "check"?}. The pieces joined are the document
in the chat format of chat_template.jinja; answer is 1 where the model speaks. "check" carries what a right answer is.
Every document is drawn from the same grammar of facts; a hash of its combination of facts (name, wish and place of a
story; operands of a sum; tool and arguments ...) sends one combination in twenty to the held-out split, so that no
held-out combination is ever trained on.

Chinese slots are framed by U+200B, which tells the tokenizer's training where words end; it is taken out before
encoding.
"""
import argparse
import hashlib
import json
import random
import sys

import lexicon_en
import lexicon_zh

MARK = "\u200b"
HELD_OUT_SHARE = 20  # one combination in twenty


def is_held_out(key):
    return hashlib.md5(key.encode()).digest()[0] * 256 + hashlib.md5(key.encode()).digest()[1] < 65536 // HELD_OUT_SHARE


class Facts(dict):
    """Values of a document's slots; Chinese ones are framed with word marks."""

    def __init__(self, lang, **values):
        super().__init__(**values)
        self.lang = lang

    def __getitem__(self, key):
        value = super().__getitem__(key)
        if self.lang == "zh" and isinstance(value, str):
            return MARK + value + MARK
        return value

    def plain(self, key):
        return super().__getitem__(key)


def fill(template, facts):
    return template.format_map(facts)


def an(word):
    return ("an " if word[0] in "aeiou" else "a ") + word


def capital(text):
    return text[:1].upper() + text[1:]


def place_words(place):
    at = lexicon_en.PLACE_PREPOSITIONS.get(place, "in")
    return {"at": at, "At": capital(at)}


class Writer:
    """Draws facts and turns them into documents of one language."""

    def __init__(self, lang, rng, held_out):
        self.lang, self.rng, self.held_out = lang, rng, held_out
        self.lex = lexicon_en if lang == "en" else lexicon_zh

    def pick(self, choices):
        return choices[int(self.rng.random() * len(choices))]

    def draw(self, make):
        """Draws until the combination belongs to this split."""
        while True:
            key, value = make()
            if is_held_out(self.lang + key) == self.held_out:
                return value

    # --- stories -------------------------------------------------------------------------------------------------

    def story_facts(self):
        return self.draw(self._story_facts)

    def _story_facts(self):
        lex, pick = self.lex, self.pick
        en = self.lang == "en"
        if self.rng.random() < 0.3:
            name, who, female = pick(lex.PET_NAMES), pick(lex.ANIMALS), self.rng.random() < 0.5
        else:
            female = self.rng.random() < 0.5
            name = pick(lex.GIRLS if female else lex.BOYS)
            who = (("girl" if female else "boy") if en else ("女孩" if female else "男孩"))
        helper_name = pick(lex.GIRLS + lex.BOYS)
        while helper_name == name:
            helper_name = pick(lex.GIRLS + lex.BOYS)
        role = pick(lex.HELPER_ROLES)
        helper = helper_name if self.rng.random() < 0.5 else (("the " + role) if en else role)
        feeling = pick(lex.FEELINGS)
        other_feeling = pick([f for f in lex.FEELINGS if f != feeling])
        if en:
            subj, obj, poss = ("she", "her", "her") if female else ("he", "him", "his")
        else:
            subj = obj = "她" if female else "他"
            poss = subj + "的"
        f = Facts(self.lang, name=name, who=who, place=pick(lex.PLACES), helper=helper, feeling=feeling,
                  other_feeling=other_feeling, subj=subj, obj=obj, poss=poss, time=pick(lex.TIMES),
                  adj=pick(lex.ADJECTIVES), lesson=pick(lex.LESSONS), colour=pick(lex.COLOURS))
        if en:
            f.update(Subj=capital(subj), Poss=capital(poss), Helper=capital(helper), Helper_short=capital(helper),
                     helper_short=helper, article_adj=an(f["adj"]), **place_words(f["place"]))
        else:
            f.update(measure="个" if who in ("女孩", "男孩") else "只")
        self.add_wish(f)
        return f"{name}|{f.plain('place')}|{f.plain('wish_they')}", f

    def add_wish(self, f):
        lex, pick, en = self.lex, self.pick, self.lang == "en"
        kind = pick(["find", "make", "reach", "visit", "learn", "help"])
        plain = lambda text: text.format_map(dict(f))
        wish_i = None
        if kind == "find":
            thing = pick(lex.FIND_THINGS)
            wish = f"find {f['poss']} lost {thing}" if en else f"找到丢失的{thing}"
            wish_i = f"find my lost {thing}"
            problem, solution = pick(lex.FIND_PROBLEMS)
            f["spot"] = pick(lex.FIND_SPOTS)
        elif kind == "make":
            food = self.rng.random() < 0.5
            thing = pick(lex.MAKE_FOODS if food else lex.MAKE_CRAFTS)
            need = pick(lex.MAKE_FOOD_NEEDS if food else lex.MAKE_CRAFT_NEEDS)
            wish = (f"make some {thing}" if thing in ("soup", "bread", "jam") else f"make a {thing}") if en else f"做{thing}"
            verb = "were" if need == "eggs" else "was"
            problem = f"there {verb} no {need} left" if en else f"{need}用完了"
            solution = ("{helper} shared some " + need) if en else ("{helper}分了一些" + need)
        elif kind == "reach":
            thing, start = pick(lex.REACH_THINGS), pick(lex.REACH_FROM)
            wish = (f"get the {f['colour']} {thing} down from the {start}" if en
                    else f"拿到{start}上{f.plain('colour')}的{thing}")
            problem, solution = pick(lex.REACH_PROBLEMS)
        elif kind == "visit":
            thing = pick(lex.VISIT)
            wish = f"visit {f['poss']} {thing}" if en else f"去看望{thing}"
            wish_i = f"visit my {thing}"
            problem, solution = pick(lex.VISIT_PROBLEMS)
        elif kind == "learn":
            thing = pick(lex.LEARN)
            wish = f"learn to {thing}" if en else f"学会{thing}"
            problem, solution = pick(lex.LEARN_PROBLEMS)
        else:
            thing = pick(lex.HELP_ANIMALS)
            state, problem, solution = pick(lex.HELP_STATES)
            wish = f"help a {state} {thing}" if en else f"帮助{state}的{thing}"
        f.update(kind=kind, thing=thing, wish=wish, wish_they=wish, wish_i=wish_i if en and wish_i else wish,
                 problem=plain(problem), solution=plain(solution))

    def story(self, f):
        lex, pick = self.lex, self.pick
        parts = [pick(lex.OPENINGS), pick(lex.WISHES), pick(lex.PROBLEMS), pick(lex.MEETINGS)]
        if self.rng.random() < 0.6:
            parts.append(pick(lex.OFFERS))
        parts += [pick(lex.SOLUTIONS), pick(lex.RESULTS[f.plain("kind")]), pick(lex.ENDINGS)]
        if self.rng.random() < 0.6:
            parts.append(pick(lex.MORALS))
        return (" " if self.lang == "en" else "").join(fill(p, f) for p in parts)

    def extraction(self, f):
        keys = ("name", "who", "place", "wish", "problem", "helper", "feeling")
        return json.dumps({k: f[k] for k in keys}, ensure_ascii=False)

    # --- documents -----------------------------------------------------------------------------------------------

    def doc_story(self):
        return "story", [[self.story(self.story_facts()), 1], ["<|im_end|>", 1]], None

    def doc_story_request(self):
        f = self.story_facts()
        roll = self.rng.random()
        request = self.pick(self.lex.STORY_REQUESTS if roll < 0.7 else
                            self.lex.PLACE_REQUESTS if roll < 0.85 else self.lex.OPEN_REQUESTS)
        answer = self.story(f)
        turns = [("user", fill(request, f)), ("assistant", answer)]
        check = {k: f.plain(k) for k in ("name", "place", "wish", "who")} if roll < 0.7 else None
        if self.rng.random() < 0.15:
            turns += self.question_turns(f)
        return "request", chat(turns, self.maybe_system()), check

    def doc_extract(self):
        f = self.story_facts()
        request = self.pick(self.lex.EXTRACT_REQUESTS)
        text = request + "\n" + self.story(f) if self.rng.random() < 0.7 else self.story(f) + "\n" + request
        answer = self.extraction(f)
        return "extract", chat([("user", text), ("assistant", answer)], self.maybe_system()), {"json": answer}

    def question_turns(self, f, first=""):
        topic = self.pick(list(self.lex.QUESTIONS))
        question, answer = self.pick(self.lex.QUESTIONS[topic])
        return [("user", first + fill(question, f)), ("assistant", fill(answer, f))]

    def doc_question(self):
        f = self.story_facts()
        first = self.story(f) + "\n"
        if self.rng.random() < 0.5:
            first = self.pick(self.lex.QUESTION_REQUESTS) + "\n" + first
        turns = self.question_turns(f, first)
        for _ in range(self.pick([0, 1, 1, 2])):
            turns += self.question_turns(f)
        return "question", chat(turns, self.maybe_system()), {"text": turns[1][1]}

    def maybe_system(self):
        return self.pick(self.lex.SYSTEMS) if self.rng.random() < 0.15 else None

    def talk_turn(self, table):
        asks, answers = self.pick(table)
        return [("user", self.pick(asks)), ("assistant", self.pick(answers))]

    def doc_chat(self):
        turns = []
        user = self.pick(self.lex.GIRLS + self.lex.BOYS)
        introduced = False
        for _ in range(self.pick([1, 2, 2, 3, 4])):
            roll = self.rng.random()
            values = Facts(self.lang, user=user)
            if introduced and roll < 0.35:
                turns += [("user", self.pick(self.lex.NAME_QUESTIONS)),
                          ("assistant", fill(self.pick(self.lex.NAME_ANSWERS), values))]
            elif not introduced and roll < 0.3:
                introduced = True
                turns += [("user", fill(self.pick(self.lex.INTRODUCTIONS), values)),
                          ("assistant", fill(self.pick(self.lex.GREETINGS), values))]
            elif roll < 0.6:
                turns += self.talk_turn(self.lex.SELF)
            else:
                turns += self.talk_turn(self.lex.TALK)
        return "chat", chat(turns, self.maybe_system()), None

    def persona(self):
        lex, pick = self.lex, self.pick
        job = pick(list(lex.JOBS))
        f = Facts(self.lang, name=pick(lex.GIRLS + lex.BOYS), job=job, work=lex.JOBS[job], place=pick(lex.PLACES),
                  hobby=pick(lex.HOBBIES), food=pick(lex.FOODS), pet=pick(lex.PETS))
        if self.lang == "en":
            f.update(place_words(f["place"]))
        return f"{f.plain('name')}|{job}|{f.plain('place')}|{f.plain('food')}|{f.plain('pet')}", f

    def doc_role(self):
        f = self.draw(self.persona)
        turns, check = [], None
        topics = list(self.lex.CHAT)
        self.rng.shuffle(topics)
        for topic in topics[:self.pick([1, 2, 2, 3, 4])]:
            if turns and self.rng.random() < 0.25:
                turns += self.talk_turn(self.lex.TALK)
            question, answers = self.pick(self.lex.CHAT[topic])
            turns += [("user", question), ("assistant", fill(self.pick(answers), f))]
            check = check or {"fact": f.plain(topic), "among": [fill(a, f) for a in answers]}
        return "role", chat(turns, fill(self.pick(self.lex.PERSONAS), f)), check

    def doc_repeat(self):
        """Words said again, which is where attention learns to copy."""
        lex, turns, check = self.lex, [], None
        pools = [lex.GIRLS + lex.BOYS, lex.PET_NAMES + lex.ANIMALS, lex.PLACES, lex.HELPER_ROLES, lex.FIND_THINGS,
                 lex.MAKE_FOOD_NEEDS, lex.MAKE_CRAFTS, lex.CITIES, lex.COLOURS, lex.FEELINGS, lex.COUNT_THINGS,
                 [str(n) for n in range(100)]]
        for _ in range(self.pick([1, 2])):
            while True:
                words = [self.pick(self.pick(pools)) for _ in range(self.rng.randrange(2, 13))]
                if is_held_out("|".join(words)) == self.held_out:
                    break
            gap = " " if self.lang == "en" else "、"
            text = gap.join(MARK + word + MARK for word in words)
            turns += [("user", self.pick(lex.REPEATS).format(words=text)), ("assistant", text)]
            check = check or {"text": text}
        return "repeat", chat(turns, self.maybe_system()), check

    def sum_facts(self):
        op = self.pick("++--*")
        if op == "*":
            a, b = self.rng.randrange(2, 10), self.rng.randrange(2, 10)
        else:
            a, b = self.rng.randrange(0, 21), self.rng.randrange(0, 21)
            if op == "-" and a < b:
                a, b = b, a
        c = a + b if op == "+" else a - b if op == "-" else a * b
        low, high = min(a, b), max(a, b)
        f = Facts(self.lang, a=a, b=b, op=op, c=c)
        return f"{low}{op}{high}", f

    @staticmethod
    def working(op, a, b):
        """Steps small enough to be known by heart, from which sums follow whose operands were never seen."""
        steps, (tens_a, a0), (tens_b, b0) = [], (a // 10 * 10, a % 10), (b // 10 * 10, b % 10)
        if op == "*":
            low, high = min(a, b), max(a, b)
            return [f"{count}: {count * high}" for count in range(1, low + 1)]
        if op == "+" and (tens_a or tens_b):
            steps.append(f"{a0} + {b0} = {a0 + b0}")
            if tens_a and tens_b:
                steps.append(f"{tens_a} + {tens_b} = {tens_a + tens_b}")
            steps.append(f"{tens_a + tens_b} + {a0 + b0} = {a + b}")
        elif op == "-" and tens_a:
            rest = tens_a - tens_b
            if a0 >= b0:
                steps.append(f"{a0} - {b0} = {a0 - b0}")
                ones = a0 - b0
            else:
                steps += [f"10 - {b0} = {10 - b0}", f"{10 - b0} + {a0} = {10 - b0 + a0}"]
                ones, rest = 10 - b0 + a0, rest - 10
            steps += [f"{tens_a} - {tens_b} = {tens_a - tens_b}"] if tens_b else []
            steps.append(f"{rest} + {ones} = {a - b}")
        return steps

    def doc_sum(self):
        lex, turns, check = self.lex, [], None
        for _ in range(self.pick([1, 2, 3])):
            # One split for both languages: the arithmetic is the same.
            while True:
                key, f = self.sum_facts()
                if is_held_out("sum" + key) == self.held_out:
                    break
            if self.rng.random() < 0.7:
                ask, answer = fill(self.pick(lex.SUMS), f), fill("{a} {op} {b} = {c}", f) + ("." if self.lang == "en" else "。")
            else:
                f.update(name=self.pick(lex.GIRLS), other=self.pick(lex.BOYS), things=self.pick(lex.COUNT_THINGS))
                at = "+-*".index(f.plain("op"))
                ask = fill((lex.WORD_ADD, lex.WORD_SUB, lex.WORD_MUL)[at], f)
                answer = fill(lex.WORD_ANSWERS[at], f)
            steps = self.working(f.plain("op"), int(f.plain("a")), int(f.plain("b")))
            if steps:
                answer = (", ".join(steps) + ". " if self.lang == "en" else "，".join(steps) + "。") + answer
            turns += [("user", ask), ("assistant", answer)]
            check = check or {"result": f["c"], "text": answer}
        return "sum", chat(turns, self.maybe_system()), check

    def tool_facts(self):
        lex = self.lex
        tool = self.pick(["get_weather", "set_timer", "calculate", "send_message"])
        a, b = self.rng.randrange(1, 100), self.rng.randrange(1, 100)
        op = self.pick("+-*")
        f = Facts(self.lang, city=self.pick(lex.CITIES), minutes=self.rng.randrange(1, 61), a=a, b=b, op=op,
                  c=a + b if op == "+" else a - b if op == "-" else a * b, person=self.pick(lex.GIRLS + lex.BOYS),
                  message=self.pick(lex.MESSAGES), weather=self.pick(lex.WEATHER), degrees=self.rng.randrange(1, 36))
        ask = self.pick(lex.ASK[tool])
        arguments = {"get_weather": {"city": f["city"]}, "set_timer": {"minutes": f["minutes"]},
                     "calculate": {"expression": f"{a} {op} {b}"},
                     "send_message": {"to": f["person"], "text": f["message"]}}[tool]
        key = tool + ask + json.dumps(arguments, ensure_ascii=False).replace(MARK, "")
        return key, (tool, ask, arguments, f)

    def tool_list(self, tool, offered):
        others = [t for t in lexicon_en.TOOL_TEXTS if t != tool]
        self.rng.shuffle(others)
        tools = others[:self.pick([1, 2, 2])] + ([tool] if offered else [others[2]])
        self.rng.shuffle(tools)
        lines = []
        for name in tools:
            parameters = {"get_weather": ["city"], "set_timer": ["minutes"], "calculate": ["expression"],
                          "send_message": self.pick([["to", "text"], ["text", "to"]])}[name]
            lines.append(f"{name}({', '.join(parameters)}): {lexicon_en.TOOL_TEXTS[name]}\n")
        return "Tools:\n" + "".join(lines)

    def doc_tool(self):
        tool, ask, arguments, f = self.draw(self.tool_facts)
        offered = self.rng.random() < 0.75
        system = self.tool_list(tool, offered)
        if self.rng.random() < 0.5:
            system = self.pick(self.lex.SYSTEMS) + "\n\n" + system
        turns = []
        if self.rng.random() < 0.15:
            turns += self.talk_turn(self.lex.TALK)
        turns.append(("user", fill(ask, f)))
        if not offered:
            turns.append(("assistant", self.pick(self.lex.NO_TOOL)))
            return "no_tool", chat(turns, system), {"text": self.lex.NO_TOOL[0]}
        call = json.dumps({"name": tool, "arguments": arguments}, ensure_ascii=False)
        turns.append(("assistant", f"<tool_call>\n{call}\n</tool_call>"))
        if self.rng.random() < 0.6:
            result = {"get_weather": {"weather": f["weather"], "temperature": f["degrees"]},
                      "set_timer": {"status": "ok"}, "calculate": {"result": f["c"]},
                      "send_message": {"status": "sent"}}[tool]
            response = json.dumps(result, ensure_ascii=False)
            turns.append(("user", f"<tool_response>\n{response}\n</tool_response>"))
            turns.append(("assistant", fill(self.pick(self.lex.TOOL_REPLIES[tool]), f)))
        if self.rng.random() < 0.1:
            turns += self.talk_turn(self.lex.TALK)
        return "tool", chat(turns, system), {"call": call}


def chat(turns, system=None):
    """Pieces of a conversation in the format of chat_template.jinja."""
    pieces = []
    if system:
        pieces.append([f"<|im_start|>system\n{system}<|im_end|>\n", 0])
    for role, text in turns:
        if role == "assistant":
            pieces += [["<|im_start|>assistant\n", 0], [text + "<|im_end|>", 1], ["\n", 0]]
        else:
            pieces.append([f"<|im_start|>user\n{text}<|im_end|>\n", 0])
    return pieces[:-1]


KINDS = [("doc_story", 12), ("doc_story_request", 14), ("doc_extract", 22), ("doc_question", 14), ("doc_chat", 8),
         ("doc_role", 11), ("doc_sum", 11), ("doc_repeat", 12), ("doc_tool", 19)]


def documents(count, seed, held_out, without=(), chinese_share=0.35):
    rng = random.Random(seed)
    writers = {lang: Writer(lang, rng, held_out) for lang in ("en", "zh")}
    names, weights = zip(*(kind for kind in KINDS if kind[0] not in without))
    for _ in range(count):
        lang = "zh" if rng.random() < chinese_share else "en"
        method = rng.choices(names, weights)[0]
        kind, pieces, check = getattr(writers[lang], method)()
        document = {"kind": kind, "lang": lang, "pieces": pieces}
        if check:
            document["check"] = json.loads(json.dumps(check, ensure_ascii=False).replace(MARK, ""))
        yield document


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=150000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--split", choices=("train", "held-out"), default="train")
    parser.add_argument("--without", nargs="*", default=[], choices=[name for name, _ in KINDS], help="kinds left out")
    args = parser.parse_args()
    for document in documents(args.documents, args.seed, args.split == "held-out", args.without):
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
