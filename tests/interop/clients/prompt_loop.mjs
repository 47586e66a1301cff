// The simplest loop with the client that pi itself ships: one prompt after the other, each sent at the end of the one
// before. Usage: node prompt_loop.mjs MODULE SETTINGS PROMPTS. Prints what each prompt came to as one JSON array.
const [module, settings, prompts] = process.argv.slice(2);
const { RpcClient } = await import(module);
const client = new RpcClient(JSON.parse(settings));
await client.start();
const seen = [];
for (const prompt of JSON.parse(prompts)) {
  try {
    const events = await client.promptAndWait(prompt, undefined, 15000);
    const ends = events.filter((event) => event.type === "message_end" && event.message.role === "assistant");
    const last = ends.at(-1)?.message;
    seen.push(last?.errorMessage ?? last?.content.map((block) => block.text ?? "").join("") ?? "no answer");
  } catch (error) {
    seen.push(`failed: ${error.message.split("\n")[0]}`);
  }
}
await client.stop();
process.stdout.write(JSON.stringify(seen));
