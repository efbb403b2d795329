"""Whose drafts a benchmark uses, as its `--draft` says it."""

OWN, NONE = "own", "none"
HELP = (
    "whose drafts: 'own' as with drafter.kind auto, 'none' the text's alone (ngram), or a draft "
    "model's folder"
)


def drafter_values(draft: str) -> dict[str, str]:
    """The configuration's `drafter` for a `--draft`."""
    if draft in (OWN, NONE):
        return {"kind": "auto" if draft == OWN else "ngram"}
    return {"kind": "cascade", "model": draft}
