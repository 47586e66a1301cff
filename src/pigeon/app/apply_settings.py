"""The user's settings as the switches of a session. The host may change them later; the files stay as they are."""

from __future__ import annotations

from pigeon.app.options import AgentOptions
from pigeon.config.settings import Settings
from pigeon.session.compaction.compaction import CompactionPolicy
from pigeon.session.retry import RetryPolicy
from pigeon.session.session import Session
from pigeon.wire.base import or_else


def apply_settings(settings: Settings, session: Session, options: AgentOptions) -> None:
    """Set every switch."""
    work = session.engine
    session.queue.steering_mode = settings.steering_mode
    session.queue.follow_up_mode = settings.follow_up_mode
    session.todos.clear_delay = settings.tasks.todo_clear_delay
    work.conduct.interrupt_mode = or_else(settings.interrupt_mode, options.interrupt_mode)
    work.conduct.keeps_unreadable_images = options.keep_unreadable_images
    work.block_images = settings.images.block_images
    work.conduct.mode = settings.tool_execution
    work.compaction.enabled = settings.compaction.enabled
    work.compaction.policy = CompactionPolicy(
        reserve_tokens=or_else(settings.compaction.reserve_tokens, None),
        keep_tokens=or_else(settings.compaction.keep_recent_tokens, None),
        per_model=or_else(settings.compaction.model_overrides, {}),
    )
    work.retry.enabled = settings.retry.enabled
    work.retry.policy = RetryPolicy(
        max_retries=settings.retry.max_retries,
        base_delay_ms=settings.retry.base_delay_ms,
        max_delay_ms=settings.retry.max_agent_delay_ms,
    )
    work.summarizer.retries = work.retry.policy if settings.retry.enabled else None
