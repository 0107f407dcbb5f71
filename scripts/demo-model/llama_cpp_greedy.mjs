// Greedy completions by llama.cpp (npm package node-llama-cpp), to compare with Millrace's and to score a model.
//
//   NODE_PATH=... node llama_cpp_greedy.mjs MODEL.gguf PROMPTS.jsonl OUT.jsonl [THREADS] [CACHE]
//
// PROMPTS: lines {"prompt": text with special tokens, "max_tokens": n}. OUT: lines {"tokens": [prompt ids], "ids": [...],
// "text": ...}, the end token left out. CACHE: F16 (llama.cpp's default, with
// its fused attention) or F32 (both as exact as it can be asked for). The package is looked up in NODE_PATH or in the current folder.
import { createRequire } from "node:module";
import { readFileSync, writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const require = createRequire(process.cwd() + "/");
const entry = require.resolve("node-llama-cpp", { paths: [process.cwd(), ...(process.env.NODE_PATH ?? "").split(":")] });
const { getLlama } = await import(pathToFileURL(entry));

const [modelPath, promptsPath, outPath, threads = "2", cache = "F16"] = process.argv.slice(2);
const llama = await getLlama({ gpu: false, build: "never", logLevel: "error" });
const model = await llama.loadModel({ modelPath });
const context = await model.createContext({
  contextSize: 512,
  threads: Number(threads),
  ...(cache === "F16" ? {} : { flashAttention: false, experimentalKvCacheKeyType: cache, experimentalKvCacheValueType: cache }),
});
const sequence = context.getSequence();
const results = [];
for (const line of readFileSync(promptsPath, "utf8").split("\n").filter(Boolean)) {
  const { prompt, max_tokens: maxTokens } = JSON.parse(line);
  const tokens = model.tokenize(prompt, true);
  const ids = [];
  await sequence.clearHistory();
  for await (const token of sequence.evaluate(tokens, { temperature: 0 })) {
    if (model.isEogToken(token)) break;
    ids.push(token);
    if (ids.length >= maxTokens) break;
  }
  results.push(JSON.stringify({ tokens, ids, text: model.detokenize(ids, true) }));
}
writeFileSync(outPath, results.join("\n") + "\n");
process.exit(0);
