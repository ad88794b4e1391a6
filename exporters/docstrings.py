"""The fields of a workaround's docstring, as `zooport workarounds` and the tests read them."""

import re

_FIELD = re.compile(r"^(Why|Cost|Upstream|Seen in|Operators|Bindings):\s*", re.MULTILINE)


def parse_fields(doc: str) -> dict[str, str]:
    """The `summary`, then `Why`, `Upstream`, `Seen in` and others, each on one line; `doc` is dedented."""
    parts = _FIELD.split(doc)
    fields = {"summary": " ".join(parts[0].split())}
    fields.update({name: " ".join(text.split()) for name, text in zip(parts[1::2], parts[2::2], strict=True)})
    return fields
