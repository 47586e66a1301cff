"""What only tests use is no part of the program: a public name is used somewhere in the source."""

from __future__ import annotations

from support.source_tree import TREE, hold

_ADAPTER = "the gateway imports the adapter of an API by name, late"
_ASYNCIO = "asyncio calls it"
_PROMPT_TOOLKIT = "prompt_toolkit calls it"
_OAUTH = "the OAuth client of the protocol's package calls it"
_PROGRAM = "programs that import `pigeon` use it"

_NAMED = "`make_python_command` is given the name of its module"
NAMES: dict[str, str] = {
    "pigeon.providers.anthropic.adapter.stream": _ADAPTER,
    "pigeon.providers.anthropic.adapter.convert_ahead": _ADAPTER,
    "pigeon.providers.google.adapter.stream": _ADAPTER,
    "pigeon.providers.google.adapter.convert_ahead": _ADAPTER,
    "pigeon.providers.openai_chat.adapter.stream": _ADAPTER,
    "pigeon.providers.openai_chat.adapter.convert_ahead": _ADAPTER,
    "pigeon.providers.openai_responses.adapter.stream": _ADAPTER,
    "pigeon.providers.openai_responses.adapter.convert_ahead": _ADAPTER,
    "pigeon.testing.scripted": _PROGRAM,
    "pigeon.testing.call": _PROGRAM,
    "pigeon.testing.failure": _PROGRAM,
    "pigeon.testing.check_workspace": _PROGRAM,
    "pigeon.frontends.batch.batch_parent.main": _NAMED,
    "pigeon.frontends.serve.workers.warm_parent.main": _NAMED,
    "pigeon.mcp.connector.main.main": _NAMED,
    "pigeon.tools.images.fitting.main": _NAMED,
    "pigeon.system.process.helper_main.main": "the helper process starts there",
    "pigeon.workspaces.remote.helper.serving.main": "the helper on another machine starts there",
}
METHODS: dict[str, str] = {
    "pigeon.extensions.runtime.loading._BoundedLoader.get_data": "the import system calls it",
    "pigeon.secrets.redactor.RedactedText.writelines": "what prints to stderr may call it",
    "pigeon.mcp.connector.sign_in.SignIn.get_client_info": _OAUTH,
    "pigeon.mcp.connector.sign_in.SignIn.set_client_info": _OAUTH,
    "pigeon.mcp.connector.sign_in.SignIn.set_tokens": _OAUTH,
    "pigeon.providers.http.network._ReceiveBuffer.eof_received": _ASYNCIO,
    "pigeon.rpc.worker_link.SupervisorConnection.pause_writing": _ASYNCIO,
    "pigeon.rpc.worker_link.SupervisorConnection.resume_writing": _ASYNCIO,
    "pigeon.frontends.serve.http.connections.LimitedHttp.send_400_response": "uvicorn calls it",
    "pigeon.frontends.serve.http.connections.LimitedWebSocket.handle_parser_exception": "uvicorn calls it",
    "pigeon.frontends.serve.http.server.HttpServer.capture_signals": "uvicorn calls it",
    "pigeon.frontends.serve.http.server.HttpServer.main_loop": "uvicorn calls it",
    "pigeon.system.process.peer.PeerProcess.pipe_connection_lost": _ASYNCIO,
    "pigeon.system.process.peer.PeerProcess.pipe_data_received": _ASYNCIO,
    "pigeon.frontends.terminal.screen.input_history.InputHistory.load_history_strings": _PROMPT_TOOLKIT,
    "pigeon.frontends.terminal.screen.input_history.InputHistory.store_string": _PROMPT_TOOLKIT,
    "pigeon.frontends.terminal.screen.live_rows.LiveRows.get_children": _PROMPT_TOOLKIT,
    "pigeon.frontends.terminal.screen.live_rows.LiveRows.preferred_height": _PROMPT_TOOLKIT,
    "pigeon.frontends.terminal.screen.live_rows.LiveRows.preferred_width": _PROMPT_TOOLKIT,
    "pigeon.frontends.terminal.screen.live_rows.LiveRows.write_to_screen": _PROMPT_TOOLKIT,
    "pigeon.frontends.terminal.screen.chat_output.ChatOutput.erase_down": _PROMPT_TOOLKIT,
}


def test_a_public_name_of_a_module_is_used() -> None:
    hold(TREE.unused_names(), NAMES)


def test_a_public_method_is_mentioned_somewhere() -> None:
    hold(TREE.unused_methods(), METHODS)
