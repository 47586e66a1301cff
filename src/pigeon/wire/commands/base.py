"""The base class of all commands, with what each declares: lane, scope and the type of its answer."""

from __future__ import annotations

from typing import ClassVar, Literal

from pigeon.wire.base import ABSENT, Absent, Json, Record

Lane = Literal["control", "session", "beside"]
Subject = Literal["session", "connection"]
# In ascending order, each includes those before it: `read` sees, `talk` also prompts and answers questions, `admin`
# also bypasses approval, changes what the agent may do, or reaches beyond the conversation.
Scope = Literal["read", "talk", "admin"]
# What a command does: it changes nothing, it does the same when it is done twice, or it does more each time.
Effect = Literal["reads", "sets", "acts"]


class Command(Record, tag_field="type", kw_only=True):
    """A request from the host. `id` may be any JSON value and is echoed in the response.

    `about` is what its handler works on: the session, or the connection to the host. `answer` is the type of the `data`
    of its response: None where that has no data, `NoReturn` for a command that is always refused; `shown` is what some
    dialects have in its place. A `silent` command has no response unless it is refused. In a command null counts as
    absent, except for the fields in `nullable`.

    `required_scope` is the least that a client of a served conversation needs to send it; every command declares its
    own. By its `effect` a client knows whether to send it again when a connection was lost before the answer. The
    fields in `session_paths` name session files or folders of them, those in `output_paths` files to write. A command
    that `outlives_worker` is repeated to the next process of a served conversation. `older_names` are accepted besides.
    """

    lane: ClassVar[Lane] = "session"
    about: ClassVar[Subject] = "session"
    answer: ClassVar[object] = None
    shown: ClassVar[object] = None
    silent: ClassVar[bool] = False
    required_scope: ClassVar[Scope]
    effect: ClassVar[Effect] = "acts"
    session_paths: ClassVar[tuple[str, ...]] = ()
    output_paths: ClassVar[tuple[str, ...]] = ()
    outlives_worker: ClassVar[bool] = False
    older_names: ClassVar[tuple[str, ...]] = ()
    nullable: ClassVar[frozenset[str]] = frozenset()

    id: Json | Absent = ABSENT

    def find_needed_scope(self) -> Scope:
        """The scope that this command needs; more than `required_scope` if what it asks for does."""
        return self.required_scope
