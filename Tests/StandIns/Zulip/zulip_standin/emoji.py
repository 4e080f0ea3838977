"""A few of the emoji that the server knows by name. The code is the hexadecimal code point."""

from .errors import RequestError

CODES = {
    "+1": "1f44d", "thumbs_up": "1f44d", "-1": "1f44e", "thumbs_down": "1f44e", "tada": "1f389", "octopus": "1f419",
    "heart": "2764", "smile": "1f642", "joy": "1f602", "eyes": "1f440", "rocket": "1f680", "check": "2705",
    "hourglass": "231b", "time_ticking": "23f3", "working_on_it": "1f6e0", "car": "1f697", "wave": "1f44b",
    "clap": "1f44f", "fire": "1f525", "question": "2753", "calendar": "1f4c5", "palm_tree": "1f334", "house": "1f3e0",
    "bus": "1f68c", "cry": "1f622", "laughing": "1f606", "star": "2b50", "warning": "26a0", "lock": "1f512",
}


def emoji(name, code, kind):
    """The code and the type of a named emoji; `code` and `kind` are what the client sent, or None."""
    if kind not in (None, "unicode_emoji", "realm_emoji", "zulip_extra_emoji"):
        raise RequestError("Invalid emoji type.")
    if name is None and code is None:
        raise RequestError("At least one of the following arguments must be present: emoji_name, emoji_code")
    if kind == "zulip_extra_emoji" or name == "zulip":
        if (name or code) != "zulip":
            raise RequestError("Invalid emoji code.")
        return "zulip", "zulip", "zulip_extra_emoji"
    if kind == "realm_emoji":
        raise RequestError("Invalid custom emoji.")
    if name is None:
        name = next((known for known, own in CODES.items() if own == code), None)
        if name is None:
            raise RequestError("Invalid emoji code.")
    if name not in CODES:
        raise RequestError(f"Emoji '{name}' does not exist")
    if code is not None and code != CODES[name]:
        raise RequestError("Invalid emoji name.")
    return name, CODES[name], "unicode_emoji"
