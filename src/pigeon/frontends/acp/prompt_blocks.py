"""The blocks of a prompt as one message: text with links where they stood, embedded texts behind it, and pictures."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from pigeon.frontends.acp.incoming import PromptBlock, PromptImage, PromptText, ResourceBlock, ResourceLinkBlock
from pigeon.frontends.acp.rpc_errors import bad_params_error
from pigeon.wire import codec
from pigeon.wire.base import Json
from pigeon.wire.content import ImageInput, to_image_content
from pigeon.wire.errors import BadRecord

KINDS = ("text", "image", "audio", "resource_link", "resource")
NO_AUDIO = "audio cannot be sent: Pigeon does not offer it (promptCapabilities.audio)"


class PromptGiven(Struct, frozen=True):
    """A prompt in the form that a conversation accepts, and the blocks as the client sent them."""

    text: str
    images: list[ImageInput]
    blocks: list[dict[str, Json]]


def prompt_of(blocks: list[dict[str, Json]]) -> PromptGiven:
    """One message from all blocks; raises `RpcError` that names the block at fault."""
    if not blocks:
        raise bad_params_error('"prompt" is empty: it needs at least one block')
    text: list[str] = []
    contexts: list[str] = []
    images: list[ImageInput] = []
    for index, raw in enumerate(blocks):
        block = _decode_block(raw, f"prompt[{index}]")
        if isinstance(block, PromptText):
            text.append(block.text)
        elif isinstance(block, PromptImage):
            images.append(_decode_image(block.data, block.mime_type, f"prompt[{index}]"))
        elif isinstance(block, ResourceLinkBlock):
            text.append(_link_text(block.name, block.uri))
        elif isinstance(block, ResourceBlock):
            text.append(_embed_resource(block, contexts, images, f"prompt[{index}].resource"))
        else:
            raise bad_params_error(f"prompt[{index}]: {NO_AUDIO}")
    return PromptGiven("\n\n".join(["".join(text), *contexts]), images, blocks)


def system_prompt_of(blocks: list[dict[str, Json]]) -> str:
    """The text of a system prompt that the client gives; raises `RpcError` for blocks of another kind."""
    texts: list[str] = []
    for index, raw in enumerate(blocks):
        block = _decode_block(raw, f"systemPrompt.content[{index}]")
        if not isinstance(block, PromptText):
            raise bad_params_error(f"systemPrompt.content[{index}] must be a text block")
        texts.append(block.text)
    if not texts:
        raise bad_params_error('"systemPrompt.content" is empty: it needs at least one text block')
    return "\n\n".join(texts)


def _decode_block(raw: dict[str, Json], where: str) -> PromptBlock:
    if raw.get("type") not in KINDS:
        raise bad_params_error(f'"{where}.type" must be one of {", ".join(KINDS)}')
    try:
        block: Any = codec.convert(raw, PromptBlock)  # type: ignore[arg-type]
    except BadRecord as error:
        raise bad_params_error(f"{where}: {error}") from None
    return block  # type: ignore[no-any-return]


def _link_text(name: str, uri: str) -> str:
    return f"[@{name}]({uri})"


def _decode_image(data: str, mime_type: str, where: str, field: str = "data") -> ImageInput:
    """An image; raises `RpcError` that names the member if it is not one."""
    image = ImageInput(data=data, mime_type=mime_type)
    try:
        to_image_content(image, where)
    except BadRecord as error:
        raise bad_params_error(str(error).replace(f"{where}.data", f"{where}.{field}")) from None
    return image


def _embed_resource(block: ResourceBlock, contexts: list[str], images: list[ImageInput], where: str) -> str:
    """The reference to a resource in the text; its content is added to the contexts or the images."""
    held = block.resource
    kind = held.mime_type if isinstance(held.mime_type, str) else ""
    name = held.uri.rstrip("/").rpartition("/")[2] or held.uri
    if held.text is not None:
        contexts.append(f'<context ref="{held.uri}">\n{held.text}\n</context>')
    elif held.blob is not None and kind.startswith("image/"):
        images.append(_decode_image(held.blob, kind, where, "blob"))
    elif held.blob is not None:
        contexts.append(f'<context ref="{held.uri}">\n[binary data, {kind or "of unknown type"}]\n</context>')
    else:
        raise bad_params_error(f'"{where}" needs "text" or "blob"')
    return _link_text(name, held.uri)
