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
const answered = await client.responses.create({ model, input: 'Once upon a time', max_output_tokens: 12 });
assert.ok(answered.output_text.length > 0);

const long = await client.completions.create({ model, prompt: 'Once', max_tokens: 100, stream: true });
for await (const _ of long) { long.controller.abort(); break; }
console.log('ok');
