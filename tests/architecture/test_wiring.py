"""What an object needs comes by its constructor: no attribute is set outside the class that it belongs to.

`SourceTree.foreign_assignments` says what counts.
"""

from __future__ import annotations

from fakes.source_tree import TREE, hold

# "module: attribute": reason
ALLOWED: dict[str, str] = {
    "pigeon.extensions.runtime.extension_thread: _exit": "an extension must not end the process",
    "pigeon.extensions.runtime.extension_thread: abort": "an extension must not end the process",
    "pigeon.extensions.runtime.extension_thread: setattr(sys, name, io.StringIO())": "an extension closed it",
    "pigeon.tools.images.resizing: MAX_IMAGE_PIXELS": "the only way in which Pillow takes its limit",
}

# What offended when this rule came.
KNOWN = {
    "pigeon.app.apply_settings: block_images",
    "pigeon.app.apply_settings: clear_delay",
    "pigeon.app.apply_settings: enabled",
    "pigeon.app.apply_settings: follow_up_mode",
    "pigeon.app.apply_settings: interrupt_mode",
    "pigeon.app.apply_settings: keeps_unreadable_images",
    "pigeon.app.apply_settings: mode",
    "pigeon.app.apply_settings: policy",
    "pigeon.app.apply_settings: retries",
    "pigeon.app.apply_settings: steering_mode",
    "pigeon.app.build: veto",
    "pigeon.app.build: while_running",
    "pigeon.app.tools: plan",
    "pigeon.app.tools: wanted",
    "pigeon.providers.openai_chat.stream: index",
    "pigeon.providers.openai_chat.stream: name",
    "pigeon.rpc.handlers.forks: locale",
    "pigeon.rpc.handlers.hello: interrupt_mode",
    "pigeon.rpc.handlers.hello: keeps_unreadable_images",
    "pigeon.rpc.handlers.modes: enabled",
    "pigeon.rpc.handlers.modes: follow_up_mode",
    "pigeon.rpc.handlers.modes: interrupt_mode",
    "pigeon.rpc.handlers.modes: steering_mode",
    "pigeon.rpc.handlers.prompting: locale",
    "pigeon.rpc.handlers.state: context_usage",
    "pigeon.session.activity: cancelled",
    "pigeon.session.engine: hooks",
    "pigeon.session.engine: reminders",
    "pigeon.session.engine: rules",
    "pigeon.session.engine: scope",
    "pigeon.session.history.session_file: torn",
    "pigeon.session.history.views: children",
    "pigeon.session.history.views: label",
    "pigeon.session.history.views: label_timestamp",
    "pigeon.session.prompting: prompt_of_run",
    "pigeon.session.runs: prompt_of_run",
    "pigeon.session.runs: scope",
    "pigeon.session.session: also_said",
    "pigeon.session.session: before_settled",
    "pigeon.session.session: place",
    "pigeon.system.process.pool: tries",
    "pigeon.system.process.pool: ward",
    "pigeon.system.process.supervised: ward",
}


def test_no_attribute_is_assigned_outside_its_class() -> None:
    hold({one.short for one in TREE.foreign_assignments()}, ALLOWED, KNOWN)
