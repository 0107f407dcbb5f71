"""The official OpenAI client for Python against a running server: openai_client.py http://HOST:PORT/v1"""
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

stream = client.completions.create(model=model, prompt="Once", max_tokens=100, stream=True)
next(iter(stream))
stream.close()  # cancels
print("ok")
