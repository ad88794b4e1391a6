"""A short summary of a report, posted to a webhook: to Slack, to what takes the same (`text`), or to something that reads the fields."""

import json
import queue
import threading
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from orchestration.report.fleet import FleetReport
from orchestration.report.summary import grave, sentence, some

WEBHOOK_VARIABLE = "ZOOPORT_WEBHOOK"

# how long one try may take, connecting included; a report waits at most twice that and the pause
TIMEOUT_SECONDS = 10.0
_PAUSE_SECONDS = 1.0
_MODELS_SHOWN = 5
_GROUPS_SHOWN = 6
_MODELS_SENT = 50
_CHARACTERS = 160


def body(made: FleetReport, page: str) -> dict[str, Any]:
    """What is posted: `text` for people, `zooport` for programs.

    Args:
        page: where the whole report lies.
    """
    comparison = made.comparison
    lines = [f"zooport: {sentence(made)}"]
    if comparison is not None:
        lines[0] += f" since {datetime.fromtimestamp(comparison.at, UTC):%Y-%m-%d %H:%M} UTC"
    headline = made.headline
    of_all = f"{headline['verified']} of {headline['exports']} exports verified"
    lines.append(f"{of_all}, {headline['failed']} failed, {headline['unverified']} not verified")
    if comparison is not None and (comparison.upgrades.packages or comparison.upgrades.code):
        lines.append(f"upgraded: {'; '.join(comparison.upgrades.words)}"[:_CHARACTERS])
    shown = grave(made)
    for group in shown[:_GROUPS_SHOWN]:
        cause = f": {group.cause[:_CHARACTERS]}" if group.cause else ""
        lines.append(f"• {group.kind}, {group.where}, {len(group.models)} ({some(group.models, _MODELS_SHOWN)}){cause}")
    if len(shown) > _GROUPS_SHOWN:
        lines.append(f"• and {len(shown) - _GROUPS_SHOWN} more places")
    lines.append(f"all of it: {page}")
    return {
        "text": "\n".join(lines),
        "zooport": {
            "snapshot": made.name,
            "at": made.snapshot.at,
            "since": comparison.at if comparison else None,
            "headline": headline,
            "upgraded": comparison.upgrades.words if comparison else [],
            "groups": [
                {
                    "kind": group.kind,
                    "backend": group.backend,
                    "stage": group.stage,
                    "cause": group.cause,
                    "count": len(group.models),
                    "models": group.models[:_MODELS_SENT],
                }
                for group in shown
            ],
            "page": page,
        },
    }


def announce(made: FleetReport, page: str, url: str, *, always: bool, timeout_seconds: float = TIMEOUT_SECONDS) -> str:
    """Post the summary if there is anything to say and somebody to say it to; what became of it, in words. Never raises.

    Args:
        url: of the webhook; empty for none.
        always: post also if nothing has changed.
    """
    if not url:
        return "off: no webhook is configured"
    changed = made.is_new and made.comparison is not None and any(made.comparison.counts.values())
    if not changed and not always:
        return "not posted: nothing has changed"
    return _post(url, json.dumps(body(made, page)).encode(), timeout_seconds)


def _post(url: str, content: bytes, timeout_seconds: float) -> str:
    """Try, and once more; URLs of webhooks are secrets, so that only their host is named."""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    except ValueError:
        return "failed: the webhook is no URL"
    if parts.scheme not in ("http", "https") or not host:
        return "failed: the webhook is no http or https URL"
    problem = ""
    for attempt in range(2):
        if attempt:
            time.sleep(_PAUSE_SECONDS)
        problem = _try(request, timeout_seconds)
        if not problem:
            return f"posted to {host}"
    return f"failed: {host}: {problem}, twice"


def _try(request: urllib.request.Request, timeout_seconds: float) -> str:
    """What went wrong, if anything did.

    In a thread that can be left behind: the time limit of a connection is one for each of its steps, and begins anew with every byte.
    """
    said: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: said.put(_send(request, timeout_seconds)), daemon=True).start()
    try:
        return said.get(timeout=timeout_seconds)
    except queue.Empty:
        return f"no answer within {timeout_seconds:g} s"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Following one would turn the post into a question for another page."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _send(request: urllib.request.Request, timeout_seconds: float) -> str:
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=timeout_seconds):
            return ""
    except urllib.error.HTTPError as error:
        with error:
            return f"it answered {error.code}"
    except urllib.error.URLError as error:
        return str(error.reason)
    except Exception as error:  # whatever a stranger's server does to the protocol must not cost the report
        return f"{type(error).__name__}: {error}"
