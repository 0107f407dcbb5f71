// Times llama.cpp, as npm's node-llama-cpp ships it, on one GGUF file; prints one JSON object.
//
//   node llama_cpp.mjs MODEL THREADS PROMPT DECODE SEQUENCES[,SEQUENCES...]
//
// The package is looked up from the working folder, which compare.py chooses.
import {createRequire} from "node:module";
import {pathToFileURL} from "node:url";
import path from "node:path";

const require = createRequire(path.join(process.cwd(), "package.json"));
const {getLlama} = await import(pathToFileURL(require.resolve("node-llama-cpp")));

const [modelPath, threadsText, promptText, decodeText, sequencesText] = process.argv.slice(2);
const threads = Number(threadsText), prompt = Number(promptText), decode = Number(decodeText);
const counts = sequencesText.split(",").map(Number);

const llama = await getLlama({gpu: false, build: "never", logLevel: "error", maxThreads: threads});
const began = performance.now();
const model = await llama.loadModel({modelPath, gpuLayers: 0});
const result = {load_seconds: (performance.now() - began) / 1000, prompt: null, decode: {}};

// The same tokens every time: a linear congruential sequence over the middle of the vocabulary.
let state = 1;
const nextToken = () => {
  state = (state * 1103515245 + 12345) % 2147483648;
  return 1000 + state % 20000;
};
const tokens = (n) => Array.from({length: n}, nextToken);

if (prompt > 0) {
  const context = await model.createContext({contextSize: prompt + 64, batchSize: 512, sequences: 1, threads});
  const sequence = context.getSequence();
  await sequence.evaluateWithoutGeneratingNewTokens(tokens(16));
  await sequence.clearHistory();
  const start = performance.now();
  await sequence.evaluateWithoutGeneratingNewTokens(tokens(prompt));
  result.prompt = prompt / ((performance.now() - start) / 1000);
  await context.dispose();
}

for (const count of counts) {
  if (decode === 0) break;
  const context = await model.createContext({
    contextSize: decode + 64, batchSize: Math.max(512, count), sequences: count, threads,
  });
  const sequences = Array.from({length: count}, () => context.getSequence());
  // One step first: what the first costs (buffers, graph) is not the speed of decoding.
  let firstDone = 0, started = 0;
  const run = async (sequence) => {
    let made = 0;
    for await (const token of sequence.evaluate(tokens(2), {temperature: 0, yieldEogToken: true})) {
      if (made === 0 && ++firstDone === count) started = performance.now();
      if (++made > decode) break;
    }
  };
  await Promise.all(sequences.map(run));
  result.decode[count] = count * decode / ((performance.now() - started) / 1000);
  await context.dispose();
}
console.log(JSON.stringify(result));
process.exit(0);
