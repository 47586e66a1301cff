// What a program does with the types that were generated: every line below must be accepted or refused by the compiler.
import type { AgentLine, Command, HostLine, State } from "./protocol";
import { agentLines, hostLines } from "./lines";

export const told: AgentLine[] = agentLines;
export const sent: HostLine[] = hostLines;

export function sessionOf(line: AgentLine): string | undefined {
  if (line.type !== "response" || !line.success || line.command !== "get_state") return undefined;
  const state: State = line.data;
  return state.sessionId;
}

export function textOf(line: AgentLine): string {
  switch (line.type) {
    case "message_update":
      return line.assistantMessageEvent.type === "text_delta" ? line.assistantMessageEvent.delta : "";
    case "extension_ui_request":
      return line.method === "select" ? line.options.join() : line.id;
    case "response":
      return line.success ? line.command : line.error;
    default:
      return line.type;
  }
}

export const good: Command = { type: "prompt", message: "hello", streamingBehavior: "steer" };
// @ts-expect-error: there is no such command
export const garbage: Command = { type: "garbage" };
// @ts-expect-error: a prompt has a message
export const silent: Command = { type: "prompt" };
// @ts-expect-error: there is no such mode
export const odd: Command = { type: "set_steering_mode", mode: "some" };
// @ts-expect-error: the state has more than that
export const empty: AgentLine = { type: "response", command: "get_state", success: true, data: {} };
