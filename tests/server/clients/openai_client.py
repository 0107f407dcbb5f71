"""The official OpenAI client for Python against a running server: openai_client.py http://HOST:PORT/v1"""
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

stream = client.completions.create(model=model, prompt="Once", max_tokens=100, stream=True)
next(iter(stream))
stream.close()  # cancels
print("ok")
