// The official OpenAI client for JavaScript against a running server: node openai_client.mjs http://HOST:PORT/v1
import assert from 'node:assert';
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: process.argv[2], apiKey: 'none', maxRetries: 0 });
const model = (await client.models.list()).data[0].id;
const messages = [{ role: 'user', content: 'Once upon a time' }];

const chat = await client.chat.completions.create({ model, messages, max_tokens: 12, temperature: 0 });
let text = '';
const stream = await client.chat.completions.create({ model, messages, max_tokens: 12, temperature: 0, stream: true });
for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? '';
assert.equal(text, chat.choices[0].message.content);

const done = await client.completions.create({ model, prompt: 'Once upon', n: 2, max_tokens: 8 });
assert.equal(done.choices.length, 2);
const vectors = await client.embeddings.create({ model, input: ['a', 'b'] });
assert.equal(vectors.data.length, 2);
await assert.rejects(client.completions.create({ model: 'unknown', prompt: 'a' }), (e) => e.status === 404);
await assert.rejects(client.completions.create({ model, prompt: 'a', temperature: -1 }), (e) => e.status === 400);

const parameters = { type: 'object', properties: { city: { type: 'string', maxLength: 8 } }, required: ['city'], additionalProperties: false };
const called = await client.chat.completions.create({
  model, messages, max_tokens: 200, tool_choice: 'required', parallel_tool_calls: false,
  tools: [{ type: 'function', function: { name: 'weather', parameters } }] });
assert.equal(called.choices[0].message.tool_calls[0].function.name, 'weather');
assert.deepEqual(Object.keys(JSON.parse(called.choices[0].message.tool_calls[0].function.arguments)), ['city']);

// Several calls at once, whole and streamed; the model's own end is made unlikely, and some seeds give more than one.
const empty = { type: 'object', properties: {}, additionalProperties: false };
const { tokens } = await client.post('/../tokenize', { body: { prompt: '<|im_end|>', add_special_tokens: false } });
const many = {
  model, messages: [{ role: 'user', content: 'Which city?' }], max_tokens: 400, tool_choice: 'required', logit_bias: { [tokens.at(-1)]: -9 },
  tools: [{ type: 'function', function: { name: 'weather', parameters } }, { type: 'function', function: { name: 'now', parameters: empty } }] };
let seed = 0, choice;
do choice = (await client.chat.completions.create({ ...many, seed: ++seed })).choices[0];
while (seed < 40 && !(choice.finish_reason === 'tool_calls' && choice.message.tool_calls.length > 1));
const calls = choice.message.tool_calls;
assert.equal(choice.finish_reason, 'tool_calls');
assert.ok(calls.length > 1 && new Set(calls.map((c) => c.id)).size === calls.length);
for (const c of calls) assert.deepEqual(Object.keys(JSON.parse(c.function.arguments)), c.function.name === 'weather' ? ['city'] : []);
const parts = client.chat.completions.stream({ ...many, seed });
const final = (await parts.finalChatCompletion()).choices[0].message.tool_calls;
assert.deepEqual(final.map((c) => [c.function.name, c.function.arguments]), calls.map((c) => [c.function.name, c.function.arguments]));
const answered = await client.responses.create({ model, input: 'Once upon a time', max_output_tokens: 12 });
assert.ok(answered.output_text.length > 0);

const long = await client.completions.create({ model, prompt: 'Once', max_tokens: 100, stream: true });
for await (const _ of long) { long.controller.abort(); break; }
console.log('ok');
