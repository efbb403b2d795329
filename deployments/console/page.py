"""The page as one response: its files joined, and the policy that lets nothing else run in it.

The files lie in `page/`. Style and script are written into the document, so that one request brings
all of it and no other host is asked; the Content-Security-Policy names both by their digests, so
that a text from outside never becomes a script, whatever it holds.
"""

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent / "page"
SCRIPTS: Final = (
    "dom.js",
    "api.js",
    "numbers.js",
    "plots.js",
    "live.js",
    "policy.js",
    "answer.js",
    "chat.js",
    "main.js",
)
"""One module together, in this order: later ones use what earlier ones declare."""
_STYLE_PLACE: Final = "/* style */"
_SCRIPT_PLACE: Final = "/* script */"


@dataclass(frozen=True, slots=True)
class Page:
    html: str
    security_policy: str
    """Value of Content-Security-Policy."""


@cache
def console_page() -> Page:
    """Read once: an installed package does not change."""
    style = f"\n{_read('page.css')}"
    script = "\n" + "\n".join(_read(name) for name in SCRIPTS)
    html = _read("page.html")
    for place, text in ((_STYLE_PLACE, style), (_SCRIPT_PLACE, script)):
        before, found, after = html.partition(place)
        assert found, f"page.html lacks {place}"
        html = f"{before}{text}{after}"
    return Page(html, _security_policy(style, script))


def _security_policy(style: str, script: str) -> str:
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_digest(script)}'",
            f"style-src '{_digest(style)}'",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")
