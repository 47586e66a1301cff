"""An extension's tool, as the loop runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pigeon.agent.inference import ToolSpec
from pigeon.extensions.public.context import ToolContext, outcome_of
from pigeon.extensions.public.failures import ExtensionFailed
from pigeon.extensions.public.tool_def import ToolDef
from pigeon.extensions.runtime.loaded_extension import Member
from pigeon.extensions.runtime.pausable_timeout import Patience
from pigeon.wire.base import Json
from pigeon.wire.errors import ToolFailed
from pigeon.wire.events import ToolOutcome

if TYPE_CHECKING:
    from pigeon.agent.interfaces import ToolRun


class ExtensionTool:
    """Runs in the extension's thread, for as long as it takes, until it is aborted."""

    def __init__(self, definition: ToolDef, member: Member) -> None:
        self._definition = definition
        self._member = member
        self.snippet = definition.snippet
        self.guidelines = definition.guidelines

    @property
    def spec(self) -> ToolSpec:
        """How the model sees it."""
        return self._definition.spec

    @property
    def reads_only(self) -> bool:
        """True if neighbouring calls may run beside it."""
        return self._definition.reads_only

    def prepare(self, arguments: dict[str, Json]) -> dict[str, Json]:
        """Arguments as they are."""
        return arguments

    async def execute(self, arguments: dict[str, Json], run: ToolRun) -> ToolOutcome:
        """Do it; whatever the extension raises becomes the text of the failure."""
        patience = Patience(None)
        context = ToolContext(self._member.reach, self._member.place, patience, run)
        forget = run.scope.on_cancel(context.cancel)
        try:
            call = self._definition.bound(arguments, context)
            result = await run.scope.wait(self._member.workshop.call(call, (), patience))
            return outcome_of(result)
        except msgspec.ValidationError as error:
            raise ToolFailed(f"{self.spec.name}: {error}") from None
        except (ExtensionFailed, TypeError) as error:
            raise ToolFailed(str(error)) from error
        finally:
            forget()
