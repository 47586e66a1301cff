// The simple loop of pi's own client: the next prompt as soon as the previous one has ended. What each prompt saw is
// printed as JSON.
const [module, settings, prompts] = process.argv.slice(2);
const { RpcClient } = await import(module);
const client = new RpcClient(JSON.parse(settings));
const seen = [];
const text = (message) => [message.content].flat().map((block) => block.text ?? block).join("");

await client.start();
for (const prompt of JSON.parse(prompts)) {
  const events = await client.promptAndWait(prompt, undefined, 20000);
  const ended = events.filter((event) => event.type === "message_end").map((event) => event.message);
  const last = ended.filter((message) => message.role === "assistant").at(-1);
  seen.push({
    said: ended.filter((message) => message.role === "user").map(text),
    answer: last && text(last),
    stopReason: last?.stopReason,
  });
}
await client.stop();
console.log(JSON.stringify(seen));
