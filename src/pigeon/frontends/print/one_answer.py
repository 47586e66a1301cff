"""`-p`: one prompt, one answer, and an exit code that tells how it went. Written against `Conversation` alone.

| ended | exit code |
|---|---|
| done | 0 |
| error, or the prompt was refused | 1, with the reason on stderr |
| limit | 3 |
| denied | 4 |
| by a signal | 130 and the like; what was said so far is printed |

There is no person to ask: every question is denied at once, and the model learns that.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any

from msgspec import structs

from pigeon import __version__
from pigeon.dialects.choice import make_dialect
from pigeon.frontends.call import CommandLine
from pigeon.frontends.print.answer_output import (
    AnswerOutput,
    JsonOutput,
    ProgressLines,
    StreamOutput,
    TerminalOutput,
    TextOutput,
    TracedOutput,
)
from pigeon.frontends.printing import print_to_stderr
from pigeon.frontends.prompt_input import CallPrompts, fetch_prompts, has_prompt, read_piped_text, read_schema
from pigeon.frontends.starting import StartedAgent, refuse_unknown_options, run_agent, with_key_from_file
from pigeon.rpc.shutdown import Shutdown
from pigeon.sdk.agent import Agent
from pigeon.sdk.conversation import DIALECT, Conversation
from pigeon.sdk.output import OutputType
from pigeon.sdk.results import CUT_OFF, ConversationEvent, Result, RunRecord, is_cut_off
from pigeon.system.environment import DOCS_FOLDER, Environment
from pigeon.transport import exit_codes
from pigeon.transport.writer import Writer
from pigeon.wire.content import text_of
from pigeon.wire.dialogs import NotifyRequest
from pigeon.wire.errors import PigeonError, Refusal, StartupError, UsageError
from pigeon.wire.messages import ToolResultMessage

NOTHING_TO_ANSWER = 'There is no prompt. Write one (pigeon -p "...") or pipe it in (git diff | pigeon -p "review this")'
NO_MODEL = (
    "There is no model to ask, because no provider has a key.\n"
    "  Set one:          export ANTHROPIC_API_KEY=…  (or OPENAI_API_KEY, GEMINI_API_KEY, …)\n"
    f"  Your own server:  describe it in models.json; see {os.path.join(DOCS_FOLDER, 'models.md')}\n"
    "  Without a key:    pigeon demo, or add --model demo\n"
    "`pigeon doctor` says what is set up."
)
# Output formats that report how the run ended even if there was none.
FORMS: dict[str | None, type[JsonOutput | StreamOutput | TextOutput]] = {
    "json": JsonOutput,
    "stream-json": StreamOutput,
}
REASONS = {
    "denied": "Not allowed: none of the last tool calls was allowed to run",
    "aborted": "The run was aborted",
}
# How long an aborted run may take to end.
ABORT_SECONDS = 5.0
FLUSH_SECONDS = 1.0
LONGEST_DENIAL = 500
PATIENCE = 7 * 24 * 3600.0


def run_one_answer(line: CommandLine, environment: Environment, nothing: str = NOTHING_TO_ANSWER) -> int:
    """Ask and print; returns the exit code. `nothing` is the error to report if there is no prompt."""
    stdout = os.dup(1)  # once there is an agent, descriptor 1 is stderr
    try:
        return _run_one_answer(line, environment, nothing)
    except UsageError:
        raise
    except StartupError as error:
        if line.output not in FORMS:
            raise
        FORMS[line.output](partial(_write, stdout), ProgressLines(None)).on_failure(str(error))
        return exit_codes.FAILED
    finally:
        os.close(stdout)


def _run_one_answer(line: CommandLine, environment: Environment, nothing: str) -> int:
    line = with_key_from_file(line, environment)
    wanted = None if line.output_schema is None else _parse_schema(line.output_schema, environment)
    piped = read_piped_text()
    if not has_prompt(line, piped, environment):
        if line.unknown:
            refuse_unknown_options(line, environment)
        raise UsageError(nothing)
    agent = structs.replace(line.agent, unattended=True, finish_gate=line.agent.unattended, offers=("agents",))
    line = structs.replace(line, agent=agent)

    async def run_prompt_of_line(started: StartedAgent) -> int:
        prompt = await fetch_prompts(started.line, piped, environment, started.agent, as_one=True)
        if not prompt.texts:
            raise UsageError(nothing)
        return await _run_prompt_and_print(started, prompt, wanted)

    dialect = make_dialect(DIALECT, __version__, environment.variables)
    return run_agent(line, environment, dialect, run_prompt_of_line, is_unwatched=True)


def _parse_schema(given: str, environment: Environment) -> OutputType:
    from pigeon.agent.output_schema import OutputSchema

    schema = read_schema(given, environment)
    try:
        OutputSchema(schema)
    except Refusal as error:
        raise UsageError(f"--output-schema: {str(error).removeprefix('outputSchema').lstrip('.: ')}") from None
    return OutputType(schema)


async def _run_prompt_and_print(started: StartedAgent, prompt: CallPrompts, wanted: OutputType | None) -> int:
    shutdown = Shutdown()
    shutdown.watch_signals()
    writer, output = _make_output(started, shutdown)
    signalled = asyncio.ensure_future(shutdown.wait_for_request())
    conversation = Agent.over(started.agent)
    notices = asyncio.ensure_future(_show_notices(conversation.events(), started.agent.problems))
    async with conversation:
        code = await _ask_and_print_result(conversation, prompt, wanted, output, writer, shutdown, signalled)
    await notices
    return code if writer is None else await _flush_output(writer, code, shutdown, signalled)


async def _flush_output(writer: Writer, code: int, shutdown: Shutdown, signalled: asyncio.Future[int]) -> int:
    """Wait until everything is written. A person may page slowly through a long answer: only a signal ends the wait."""
    closing = asyncio.ensure_future(asyncio.to_thread(writer.close, PATIENCE))
    both: set[asyncio.Future[Any]] = {closing, signalled}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if not closing.done():
        # A failed write is a reason to end too; only the closing, which then ends by itself, knows why.
        await (asyncio.wait({closing}) if writer.has_failed else shutdown.wait_for_cleanup(closing, FLUSH_SECONDS))
        if closing.done():
            closing.result()
        return code or signalled.result()
    return code or (exit_codes.OK if closing.result() else exit_codes.FAILED)


def _make_output(started: StartedAgent, shutdown: Shutdown) -> tuple[Writer | None, AnswerOutput]:
    """The requested output; it prints through the writer, or directly at a terminal."""
    descriptor, asked = started.descriptors[1], started.line.output
    progress = ProgressLines(sys.stderr)
    output: AnswerOutput
    if os.isatty(descriptor) and asked in (None, "text"):
        mask = started.agent.redactor.make_stream_masker()
        writer, output = None, TerminalOutput(partial(_write, descriptor), progress, mask)
    else:
        writer = Writer(descriptor, lambda: shutdown.request_exit(exit_codes.FAILED))
        output = FORMS.get(asked, TextOutput)(partial(_write_masked, writer, started.agent.redactor.mask), progress)
    return writer, output if started.show is None else TracedOutput(output, started.show)


def _write_masked(writer: Writer, mask: Callable[[bytes], bytes], data: bytes) -> None:
    writer.put((mask(data),))


def _write(descriptor: int, data: bytes) -> None:
    """Write to a terminal, which may be gone."""
    with suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]


async def _ask_and_print_result(
    conversation: Conversation,
    prompt: CallPrompts,
    wanted: OutputType | None,
    output: AnswerOutput,
    writer: Writer | None,
    shutdown: Shutdown,
    signalled: asyncio.Future[int],
) -> int:
    """Send the prompt and print the outcome; returns the exit code. A signal aborts the run and decides the code."""
    state = await conversation.get_state()
    if not state.model:
        output.on_failure(NO_MODEL)
        return exit_codes.FAILED
    record = RunRecord(wanted)
    work = asyncio.ensure_future(_prompt_and_forward_events(conversation, prompt, wanted, record, output, writer))
    both: set[asyncio.Future[Any]] = {work, signalled}
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    code: int | None = None
    if not work.done():
        code = signalled.result()
        with suppress(PigeonError, TimeoutError):
            await asyncio.wait_for(conversation.abort(), ABORT_SECONDS)
        await shutdown.wait_for_cleanup(work, ABORT_SECONDS)
    try:
        if work.done():
            work.result()
        result = record.make_result(await conversation.get_state())
    except PigeonError as error:
        output.on_failure(str(error))
        refused = exit_codes.LIMIT if getattr(error, "code", None) == "limit" else exit_codes.FAILED
        return refused if code is None else code
    output.on_result(result)
    if code is not None:
        return code
    if result.ended != "done":
        print_to_stderr(f"Error: {_failure_reason(result)}")
    elif is_cut_off(result.messages):
        print_to_stderr(f"Warning: {CUT_OFF}")
    return exit_codes.BY_END.get(result.ended, exit_codes.FAILED)


def _failure_reason(result: Result[Any]) -> str:
    """Why a run did not finish; for denied calls, the reason of the gate that denied the last one."""
    reason = result.error or REASONS.get(result.ended, "The run ended in an error")
    if result.ended != "denied":
        return reason
    denied = next((one for one in reversed(result.messages) if isinstance(one, ToolResultMessage)), None)
    if denied is None:
        return reason
    # The rest of the text is advice to the model.
    words = " ".join(text_of(denied.content).split()).partition(" It was not run.")[0]
    return f"{reason}. The last one, {denied.tool_name}: {words[:LONGEST_DENIAL]}"


async def _prompt_and_forward_events(
    conversation: Conversation,
    prompt: CallPrompts,
    wanted: OutputType | None,
    record: RunRecord,
    output: AnswerOutput,
    writer: Writer | None,
) -> None:
    schema: Any = None if wanted is None else wanted.schema
    async with conversation.prompt(prompt.texts[0], images=prompt.images, output=schema) as events:
        async for event in events:
            record.add_event(event)
            output.on_event(event)
            if writer is not None and writer.is_full:
                await writer.wait_for_room()


async def _show_notices(events: AsyncIterator[ConversationEvent], told: Collection[str]) -> None:
    """Print notices of the agent and its extensions on stderr, unless they were already shown at the start (`told`)."""
    async for event in events:
        if isinstance(event, NotifyRequest) and event.message not in told:
            print_to_stderr(f"{'Note' if event.notify_type == 'info' else 'Warning'}: {event.message}")
