"""The official OpenAI client for Python against running servers: openai_client.py http://HOST:PORT/v1 REASONING

REASONING is the address of one whose prompts end with <think>.
"""
import json
import sys

import openai

client = openai.OpenAI(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=30)
model = client.models.list().data[0].id

chat = client.chat.completions.create(
    model=model, messages=[{"role": "user", "content": "Once upon a time"}], max_tokens=12, temperature=0,
    logprobs=True, top_logprobs=2)
assert chat.choices[0].finish_reason in ("length", "stop"), chat
assert chat.usage.completion_tokens <= 12
assert len(chat.choices[0].logprobs.content) == chat.usage.completion_tokens
assert len(chat.choices[0].logprobs.content[0].top_logprobs) == 2

text, usage = "", None
for chunk in client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": "Once upon a time"}], max_tokens=12, temperature=0,
        stream=True, stream_options={"include_usage": True}):
    if chunk.choices:
        text += chunk.choices[0].delta.content or ""
    usage = chunk.usage or usage
assert text == chat.choices[0].message.content, (text, chat.choices[0].message.content)
assert usage.completion_tokens == chat.usage.completion_tokens

done = client.completions.create(model=model, prompt=["Once upon", "The cat"], n=2, max_tokens=8, seed=3, logprobs=1)
assert [c.index for c in done.choices] == [0, 1, 2, 3]
again = client.completions.create(model=model, prompt=["Once upon", "The cat"], n=2, max_tokens=8, seed=3)
assert [c.text for c in done.choices] == [c.text for c in again.choices]

vectors = client.embeddings.create(model=model, input=["a small cat", "a big dog"])
assert len(vectors.data) == 2 and abs(sum(x * x for x in vectors.data[0].embedding) - 1) < 1e-3

for wrong, kind in (({"model": "unknown"}, openai.NotFoundError), ({"temperature": -1}, openai.BadRequestError),
                    ({"extra_body": {"unheard_of": 1}}, openai.BadRequestError)):
    try:
        client.completions.create(**{"model": model, "prompt": "a", "max_tokens": 2, **wrong})
        raise SystemExit(f"{wrong} was not refused")
    except kind as error:
        assert error.message

# Structured output and tool calls.
ask = [{"role": "user", "content": "Which city?"}]
schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}, "big": {"type": "boolean"}},
          "required": ["city", "big"], "additionalProperties": False}
made = client.chat.completions.create(model=model, messages=ask, max_tokens=200, response_format={
    "type": "json_schema", "json_schema": {"name": "city", "schema": schema, "strict": True}},
    extra_body={"guided_whitespace_pattern": ""})
answer = json.loads(made.choices[0].message.content)
assert set(answer) == {"city", "big"} and isinstance(answer["big"], bool), answer
tools = [{"type": "function", "function": {"name": "weather", "parameters": schema}}]
made = client.chat.completions.create(model=model, messages=ask, max_tokens=200, tools=tools, tool_choice="required",
                                      parallel_tool_calls=False)
call = made.choices[0].message.tool_calls[0]
assert made.choices[0].finish_reason == "tool_calls" and call.function.name == "weather", made
assert set(json.loads(call.function.arguments)) == {"city", "big"}
name, arguments = None, ""
for chunk in client.chat.completions.create(
        model=model, messages=ask, max_tokens=200, tools=tools, stream=True,
        tool_choice={"type": "function", "function": {"name": "weather"}}):
    for part in chunk.choices[0].delta.tool_calls or []:
        name = part.function.name or name
        arguments += part.function.arguments or ""
assert name == "weather" and set(json.loads(arguments)) == {"city", "big"}, arguments

# Several calls at once. The model would write one only: its end is made unlikely, and some seeds give more.
tools.append({"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}})
end = client.post("/../tokenize", body={"prompt": "<|im_end|>", "add_special_tokens": False}, cast_to=object)["tokens"][-1]
many = dict(model=model, messages=ask, max_tokens=400, tools=tools, tool_choice="required", logit_bias={str(end): -9})
for seed in range(40):
    choice = client.chat.completions.create(**many, seed=seed).choices[0]
    if choice.finish_reason == "tool_calls" and len(choice.message.tool_calls) > 1:
        break
calls = choice.message.tool_calls
assert choice.finish_reason == "tool_calls" and len(calls) > 1, choice
assert len({c.id for c in calls}) == len(calls)
for c in calls:
    assert set(json.loads(c.function.arguments)) == ({"city", "big"} if c.function.name == "weather" else set()), c
streamed, finish = {}, None
for chunk in client.chat.completions.create(**many, seed=seed, stream=True):
    for part in chunk.choices[0].delta.tool_calls or []:
        at = streamed.setdefault(part.index, ["", ""])
        at[0] += part.function.name or ""
        at[1] += part.function.arguments or ""
    finish = chunk.choices[0].finish_reason or finish
assert finish == "tool_calls"
assert [streamed[i] for i in range(len(calls))] == [[c.function.name, c.function.arguments] for c in calls], streamed
one = client.chat.completions.create(**many, seed=seed, parallel_tool_calls=False).choices[0]
assert len(one.message.tool_calls) == 1 and one.finish_reason == "tool_calls", one

try:
    client.chat.completions.create(model=model, messages=ask, response_format={
        "type": "json_schema", "json_schema": {"name": "x", "schema": {"pattern": "(?<=a)b"}}})
    raise SystemExit("a schema that cannot be enforced was not refused")
except openai.BadRequestError as error:
    assert error.param == "response_format.json_schema.schema", error

# /v1/responses.
whole = client.responses.create(model=model, input="Once upon a time", max_output_tokens=12, temperature=0)
assert whole.status in ("completed", "incomplete") and whole.usage.output_tokens <= 12
text, last = "", None
for event in client.responses.create(model=model, input="Once upon a time", max_output_tokens=12, temperature=0, stream=True):
    if event.type == "response.output_text.delta":
        text += event.delta
    last = event
assert last.type in ("response.completed", "response.incomplete") and last.response.output_text == text
assert text == whole.output_text, (text, whole.output_text)
called = client.responses.create(model=model, input="Which city?", max_output_tokens=200, tool_choice="required",
                                 tools=[{"type": "function", "name": "weather", "parameters": schema, "strict": True}])
assert called.output[-1].type == "function_call" and set(json.loads(called.output[-1].arguments)) == {"city", "big"}

# Reasoning with a budget, and a grammar from its end on; what is forced right behind comes in a stream, too.
thinker = openai.OpenAI(base_url=sys.argv[2], api_key="none", max_retries=0, timeout=30)
for budget in (0, 5):
    asked = dict(model=model, messages=ask, max_tokens=200, temperature=0, extra_body={
        "thinking_budget": budget, "guided_whitespace_pattern": "",
        "guided_json": {"type": "object", "properties": {"größe_in_метрах": {"type": "boolean"}},
                        "required": ["größe_in_метрах"], "additionalProperties": False}})
    made = thinker.chat.completions.create(**asked)
    said = made.choices[0].message
    assert list(json.loads(said.content)) == ["größe_in_метрах"], said
    # What ends the block counts too, as tokens of the answer.
    spent = made.usage.completion_tokens_details.reasoning_tokens
    assert budget <= spent <= budget + 10, made.usage
    reasoned = getattr(said, "reasoning_content", None) or ""
    assert bool(reasoned) == (budget > 0) and "</think>" not in reasoned, said
    thought = text = ""
    for chunk in thinker.chat.completions.create(**asked, stream=True):
        if chunk.choices:
            delta = chunk.choices[0].delta
            thought += getattr(delta, "reasoning_content", None) or ""
            text += delta.content or ""
    assert (thought, text) == (reasoned, said.content), (thought, text, said)

stream = client.completions.create(model=model, prompt="Once", max_tokens=100, stream=True)
next(iter(stream))
stream.close()  # cancels
print("ok")
