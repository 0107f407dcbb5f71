"""Anthropic's official client for Python against running servers: anthropic_client.py http://HOST:PORT MANY

MANY is the address of one in whose format of calls the model writes call after call, to the bound of its tokens.
"""
import sys

import anthropic

client = anthropic.Anthropic(base_url=sys.argv[1], api_key="none", max_retries=0, timeout=30)
ask = [{"role": "user", "content": "Once upon a time"}]

whole = client.messages.create(model="default", max_tokens=12, messages=ask, extra_body={"temperature": 0})
assert whole.role == "assistant" and whole.stop_reason in ("end_turn", "max_tokens"), whole
assert 0 < whole.usage.output_tokens <= 12 and whole.usage.input_tokens > 0

with client.messages.stream(model="default", max_tokens=12, messages=ask, extra_body={"temperature": 0}) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert text == whole.content[0].text and final.stop_reason == whole.stop_reason, (text, whole)
assert final.usage.output_tokens == whole.usage.output_tokens

stop = text.split()[1]
stopped = client.messages.create(model="default", max_tokens=12, messages=ask, extra_body={"temperature": 0}, stop_sequences=[stop])
assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == stop, stopped

schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"],
          "additionalProperties": False}
tools = [{"name": "weather", "description": "The weather", "input_schema": schema}]
called = client.messages.create(model="default", max_tokens=200, messages=ask, tools=tools,
                                tool_choice={"type": "tool", "name": "weather"})
assert called.stop_reason == "tool_use"
use = called.content[-1]
assert use.type == "tool_use" and use.name == "weather" and set(use.input) == {"city"}, use
with client.messages.stream(model="default", max_tokens=200, messages=ask, tools=tools,
                            tool_choice={"type": "any"}) as stream:
    final = stream.get_final_message()
assert final.stop_reason == "tool_use" and final.content[-1].name == "weather", final

# Several calls at once: all but the one that the bound cuts are whole.
several = anthropic.Anthropic(base_url=sys.argv[2], api_key="none", max_retries=0, timeout=30)
tools.append({"name": "now", "description": "The time", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}})


def check_calls(message, least):
    uses = [block for block in message.content if block.type == "tool_use"]
    assert len(uses) >= least and len({u.id for u in uses}) == len(uses), message
    for u in uses[:-1]:
        assert set(u.input) == ({"city"} if u.name == "weather" else set()), u
    return uses


made = several.messages.create(model="default", max_tokens=150, messages=ask, tools=tools, tool_choice={"type": "any"})
check_calls(made, 2)
with several.messages.stream(model="default", max_tokens=150, messages=ask, tools=tools, tool_choice={"type": "any"}) as stream:
    began = sum(e.type == "content_block_start" and e.content_block.type == "tool_use" for e in stream)
    final = stream.get_final_message()
assert began == len(check_calls(final, 2)), final
one = several.messages.create(model="default", max_tokens=150, messages=ask, tools=tools,
                              tool_choice={"type": "any", "disable_parallel_tool_use": True})
assert len(check_calls(one, 1)) == 1 and one.stop_reason == "tool_use", one

after = ask + [{"role": "assistant", "content": [{"type": "tool_use", "id": use.id, "name": "weather", "input": use.input}]},
               {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}]}]
assert client.messages.create(model="default", max_tokens=5, messages=after, tools=tools).usage.output_tokens > 0

for wrong, kind in (({"model": "unknown"}, anthropic.NotFoundError), ({"extra_body": {"temperature": 9}}, anthropic.BadRequestError)):
    try:
        client.messages.create(**{"model": "default", "max_tokens": 5, "messages": ask, **wrong})
        raise SystemExit(f"{wrong} was not refused")
    except kind as error:
        assert error.body["error"]["message"]
print("ok")
