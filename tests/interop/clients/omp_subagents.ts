// Children as the client that oh-my-pi ships sees them. What it saw is printed as one JSON object.
import { writeFileSync } from "node:fs";

const [module, program, settings, go] = process.argv.slice(2);
const { RpcClient } = await import(module);
const seen: Record<string, any> = { lifecycle: [], progress: [], events: [] };
const client = new RpcClient({ ...JSON.parse(settings), command: [program, "--mode", "rpc"] });
await client.start();
client.onSubagentLifecycle((payload: any) => seen.lifecycle.push(payload));
client.onSubagentProgress((payload: any) => {
  seen.progress.push(payload);
  if (!payload.progress.currentTool || seen.listing) return;
  // The command of the child waits for this file.
  seen.listing = client.getSubagents().finally(() => writeFileSync(go, ""));
});
client.onSubagentEvent((payload: any) => seen.events.push([payload.id, payload.event.type]));
seen.level = await client.setSubagentSubscription("events");
await client.promptAndWait("ROOT", undefined, 30000);
seen.listing = await seen.listing;
seen.after = await client.getSubagents();
const id = seen.lifecycle[0].id;
seen.page = await client.getSubagentMessages({ subagentId: id });
seen.rest = await client.getSubagentMessages({ sessionFile: seen.page.sessionFile, fromByte: seen.page.nextByte });
await client.stop();
seen.stderr = client.getStderr();
process.stdout.write(JSON.stringify(seen));
