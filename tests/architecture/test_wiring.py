"""What an object needs comes by its constructor: no attribute is set outside the class that it belongs to.

`SourceTree.foreign_assignments` says what counts.
"""

from __future__ import annotations

from support.source_tree import TREE, hold

# "module: attribute": reason
ALLOWED: dict[str, str] = {
    "pigeon.cli.main: system": "all that `uuid` asks `platform` for, which takes long to import",
    "pigeon.cli.masked_output: stdout": "a command prints there, and no key may be shown",
    "pigeon.cli.masked_output: stderr": "a command and its errors print there, and no key may be shown",
    "pigeon.frontends.starting: stdout": "extensions print there, and no key may be shown",
    "pigeon.frontends.starting: stderr": "the interpreter and libraries print there too, and no key may be shown",
    "pigeon.extensions.runtime.extension_thread: _exit": "an extension must not end the process",
    "pigeon.extensions.runtime.extension_thread: abort": "an extension must not end the process",
    "pigeon.extensions.runtime.extension_thread: setattr(sys, name, io.StringIO())": "an extension closed it",
    "pigeon.frontends.serve.command: check_hostname": "the only way in which ssl takes it",
    **{
        f"pigeon.mcp.connector.authorization: {name}": "the context of the OAuth client, which its subclass fills in"
        for name in (
            "grant_types",
            "oauth_metadata",
            "protected_resource_metadata",
            "scope",
            "token_endpoint_auth_method",
            "token_expiry_time",
        )
    },
    "pigeon.mcp.connector.web: stream": "the only way to limit the body of an answer for every proxy",
    "pigeon.frontends.serve.http.application: redirect_slashes": "the only way in which Starlette takes it",
    "pigeon.system.process.immortal_objects: value": "the only way in which ctypes writes a number",
    **{
        f"pigeon.sdk.command_methods: {name}": "a method that is made has the name and the signature of its command"
        for name in ("__doc__", "__name__", "__qualname__", "__signature__")
    },
    "pigeon.frontends.terminal.screen.live_rows: height": "the way in which prompt_toolkit takes it",
    "pigeon.frontends.terminal.screen.live_rows: width": "the way in which prompt_toolkit takes it",
    **{
        f"pigeon.system.process.warm.takeover: {name}": "a forked process opens its streams as Python does at a start"
        for name in ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__", "name")
    },
    "pigeon.tools.images.resizing: MAX_IMAGE_PIXELS": "the only way in which Pillow takes its limit",
}


def test_no_code_asks_whether_an_object_is_the_null_object() -> None:
    assert TREE.null_objects_asked() == []


def test_no_attribute_is_assigned_outside_its_class() -> None:
    hold({one.short for one in TREE.foreign_assignments()}, ALLOWED)
