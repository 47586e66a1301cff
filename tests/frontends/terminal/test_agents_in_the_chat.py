"""Agents, jobs and plans in a real pseudo-terminal, narrow and wide, and in plain lines."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from support.terminal import CTRL_B, DOWN, ENTER, LOOKS, Look, PtyChat, call, scripted_model_arguments

PLAN = "# The plan\n\n" + "\n".join(f"{number}. Step number {number}" for number in range(1, 41))


def task(prompt: str, **more: Any) -> dict[str, Any]:
    return {"name": "task", "arguments": {"prompt": prompt, **more}}


def wait_for(pipe: Path) -> str:
    """A command that goes on until something is written into a pipe."""
    os.mkfifo(pipe)
    return f"echo begun-{pipe.name}; read line < {pipe.name}; echo ended-{pipe.name}"


NEVER_ENDS = "echo begun; sleep 600"


@LOOKS
def test_agents_are_seen_at_work_looked_at_told_something_and_stopped(tmp_path: Path, look: Look) -> None:
    both = {"toolCalls": [task("CHILD", title="Look around", agent="explore"), task("OTHER", title="Build it")]}
    arguments = scripted_model_arguments(
        tmp_path,
        ("ROOT", [both, "Both have ended."]),
        ("CHILD", [call("ls", path="."), "Nothing special.", "It heard."]),
        ("OTHER", [{"text": "I build.", **call("bash", command=wait_for(tmp_path / "built"))}, "Built."]),
        ("hurry", "Built in a hurry."),
        cost={"input": 1000, "output": 1000},
    )
    with look.open(tmp_path, arguments) as chat:
        chat.footer("s.json")
        chat.send_line("ROOT")
        chat.reads("Nothing special.")
        chat.until(lambda _: any("general Build" in line for line in chat.lines))
        chat.until("begun-built")
        chat.footer("$")
        chat.send_line("/agents")
        chat.answers(ENTER, "Which agent?")
        chat.answers(ENTER, "Show what it has said and done")
        chat.reads("I build.")
        chat.reads("This was the agent")
        chat.send_line("/agents")
        chat.answers(ENTER, "Which agent?")
        chat.answers(DOWN + ENTER, "Send it a message")
        chat.answers("hurry" + ENTER, "What should it know?")
        chat.reads("It gets the message at its next break")
        (tmp_path / "built").write_text("go\n")
        chat.reads("Built in a hurry.")
        chat.reads("Both have ended.")
        look.fits(chat)


def test_one_agent_is_stopped_and_the_conversation_goes_on(tmp_path: Path) -> None:
    arguments = scripted_model_arguments(
        tmp_path,
        ("ROOT", [{"toolCalls": [task("CHILD", title="Wait long")]}, "It was stopped."]),
        ("CHILD", call("bash", command=NEVER_ENDS)),
    )
    with PtyChat(tmp_path, arguments) as chat:
        chat.footer("s.json")
        chat.send_line("/agents")
        chat.reads("No agents have been started")
        chat.send_line("ROOT")
        chat.until("begun")
        chat.send_line("/agents")
        chat.answers(ENTER, "Which agent?")
        chat.answers(DOWN + DOWN + ENTER, "Stop it")
        chat.reads("Stopped: Wait long")
        chat.reads("It was stopped.")


@LOOKS
def test_a_command_that_takes_long_goes_on_in_the_background(tmp_path: Path, look: Look) -> None:
    arguments = scripted_model_arguments(
        tmp_path, ("ROOT", [call("bash", command=wait_for(tmp_path / "over")), "It goes on."]), ("TELL", "Told.")
    )
    with look.open(tmp_path, arguments) as chat:
        chat.footer("s.json")
        chat.send_line("/jobs")
        chat.reads("Nothing runs in the background")
        chat.send_line("/background")
        chat.reads("No command of the agent is running")
        chat.send_line("ROOT")
        chat.until("begun-over")
        chat.type(CTRL_B)
        chat.reads("It goes on.")
        chat.footer("1 ")
        chat.send_line("/jobs")
        chat.answers(ENTER, "Which one?")
        chat.answers(ENTER, "Show its output")
        chat.reads("job-1, running for")
        (tmp_path / "over").write_text("go\n")
        chat.reads("has ended with exit code 0")
        chat.send_line("/jobs")
        chat.answers(ENTER, "Which one?")
        chat.answers(ENTER, "Show its output")
        chat.reads("ended-over")


def test_a_job_is_stopped(tmp_path: Path) -> None:
    arguments = scripted_model_arguments(
        tmp_path, ("ROOT", [call("bash", command=NEVER_ENDS, background=True), "Started."])
    )
    with PtyChat(tmp_path, arguments) as chat:
        chat.footer("s.json")
        chat.send_line("ROOT")
        chat.reads("Started.")
        chat.footer("1 in the background")
        chat.send_line("/jobs")
        chat.answers(ENTER, "Which one?")
        chat.answers(DOWN + ENTER, "Stop it")
        chat.reads("was stopped. /jobs has its output")


@LOOKS
def test_a_plan_can_be_read_changed_and_accepted(tmp_path: Path, look: Look) -> None:
    arguments = scripted_model_arguments(
        tmp_path,
        ("ROOT", [call("submit_plan", plan=PLAN)]),
        (
            "fewer",
            [call("submit_plan", plan="Only read."), call("write", path="done.txt", content="x"), "Carried out."],
        ),
    )
    with look.open(tmp_path, arguments) as chat:
        chat.footer("s.json")
        chat.send_line("/plan")
        chat.reads("Plan mode: nothing changes")
        chat.footer("plan")
        chat.send_line("ROOT")
        chat.reads("Step number 1")
        chat.answers(DOWN + ENTER, "Accept this plan?")
        assert chat.reads("Step number 40")
        chat.answers("fewer steps" + ENTER, "What should change?")
        chat.reads("You want the plan to be changed")
        chat.reads("Only read.")
        chat.answers(ENTER, "Accept this plan?")
        chat.reads("You have accepted the plan")
        chat.reads("Carried out.")
        assert (tmp_path / "done.txt").exists()
        chat.until(lambda _: "  plan" not in chat.lines[-1])


def test_plain_lines_say_the_same(tmp_path: Path) -> None:
    arguments = scripted_model_arguments(
        tmp_path,
        ("ROOT", [{"toolCalls": [task("CHILD", title="Look around")]}, call("submit_plan", plan="1. Read"), "Over."]),
        ("rather", [call("submit_plan", plan="2. Write")]),
        ("CHILD", "All is well."),
    )
    with PtyChat(tmp_path, ["--plain", "--approval-mode", "plan", *arguments], columns=100) as chat:
        chat.reads("Type a message")
        chat.send_line("ROOT")
        chat.reads("plan mode")
        chat.reads("The plan of the agent:")
        chat.reads("/2: Change")
        chat.send_line("/3")
        chat.reads("You have refused the plan")
        chat.reads("Over.")
        chat.send_line("rather")
        chat.reads("2. Write")
        chat.reads("/3: Refuse")
        chat.send_line("/no ask me first")
        chat.reads("You have not accepted the plan")
        chat.reads("Answer: You said: ask me first")
        chat.send_line("/jobs")
        chat.reads("Nothing runs in the background")
