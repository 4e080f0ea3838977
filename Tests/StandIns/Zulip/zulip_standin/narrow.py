"""Search filters: a narrow becomes a condition of SQL, and, for event queues, a test of one message."""

import re

from . import flags
from .errors import bad_narrow

TERM_LIMIT = 50

FLAG_TERMS = {
    "starred": (flags.STARRED, True), "unread": (flags.READ, False), "mentioned": (flags.ANY_MENTION, True),
    "alerted": (flags.HAS_ALERT_WORD, True),
}


def terms(narrow):
    """The terms of a narrow as (operator, operand, negated); a term is an object or a pair."""
    if len(narrow) > TERM_LIMIT:
        raise bad_narrow("too many terms")
    result = []
    for term in narrow:
        if isinstance(term, list) and len(term) == 2 and all(isinstance(part, str) for part in term):
            result.append((term[0], term[1], False))
        elif isinstance(term, dict) and "operator" in term and "operand" in term:
            result.append((term["operator"], term["operand"], bool(term.get("negated", False))))
        else:
            raise bad_narrow("invalid term")
        operator, operand, _ = result[-1]
        if not isinstance(operator, str) or not isinstance(operand, (str, int, list)):
            raise bad_narrow("invalid term")
    return result


def search_words(operand):
    """The words and quoted phrases of a search."""
    return [phrase or word for phrase, word in re.findall(r'"([^"]+)"|(\S+)', operand)]


class Narrow:
    """A condition on `m` (messages) and `um` (the reader's row of it, which may be missing)."""

    def __init__(self, server, reader, narrow):
        self.server = server
        self.reader = reader
        self.conditions = []
        self.values = []
        self.words = []
        self.channel = None
        self.public_history = False
        for operator, operand, negated in terms(narrow):
            self.add(operator, operand, negated)

    @property
    def condition(self):
        return " AND ".join(["1"] + self.conditions)

    def matches_text(self, content, topic):
        """Whether all words of the search are in the message. SQL does not do this part."""
        text = content + "\n" + topic
        return all(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) for word in self.words)

    def add(self, operator, operand, negated):
        if operator in ("channel", "stream"):
            self.add_channel(operand, negated)
            return
        if operator == "search":
            if not isinstance(operand, str):
                raise bad_narrow("invalid operand")
            if negated:
                for word in search_words(operand):
                    self.include("folded(m.content) LIKE ?", [f"%{word.casefold()}%"], True)
            else:
                self.words += search_words(operand)
            return
        methods = {
            "topic": self.topic, "sender": self.sender, "dm": self.direct, "pm-with": self.direct,
            "dm-including": self.direct_including, "group-pm-with": self.direct_including, "is": self.state,
            "has": self.having, "id": self.number, "with": self.conversation, "channels": self.channels,
            "streams": self.channels, "near": lambda operand: ("1", []),
        }
        if operator not in methods:
            raise bad_narrow(f"unknown operator {operator}")
        condition, values = methods[operator](operand)
        self.include(condition, values, negated)

    def include(self, condition, values, negated):
        self.conditions.append(f"NOT ({condition})" if negated else f"({condition})")
        self.values += values

    def add_channel(self, operand, negated):
        channel = self.server.channels.visible(self.reader, operand)
        if channel is None:
            raise bad_narrow("unknown channel")
        self.include("m.recipient = ?", [channel["recipient"]], negated)
        if not negated:
            self.channel = channel
            self.public_history = self.server.channels.history_is_open(self.reader, channel)

    def channels(self, operand):
        if operand not in ("public", "web-public"):
            raise bad_narrow("unknown channels operand")
        if operand == "web-public":
            return "0", []
        self.public_history = True
        return "m.recipient IN (SELECT recipient FROM streams WHERE NOT private)", []

    def topic(self, operand):
        if not isinstance(operand, str):
            raise bad_narrow("invalid operand")
        return "folded(m.topic) = ?", [self.server.topic_of_client(operand).casefold()]

    def sender(self, operand):
        if operand == "me":
            return "m.sender = ?", [self.reader]
        person = self.server.people.find(operand)
        if person is None:
            raise bad_narrow("unknown user")
        return "m.sender = ?", [person["id"]]

    def people(self, operand):
        parts = operand if isinstance(operand, list) else str(operand).split(",")
        found = [self.server.people.find(part if isinstance(part, int) else part.strip()) for part in parts]
        if None in found or not found:
            raise bad_narrow("unknown user")
        return {person["id"] for person in found}

    def direct(self, operand):
        members = sorted(self.people(operand) | {self.reader})
        return (
            "m.recipient IN (SELECT id FROM recipients WHERE kind = 'direct' AND members = ?)",
            [",".join(map(str, members))])

    def direct_including(self, operand):
        tests = " AND ".join(["kind = 'direct'"] + ["',' || members || ',' LIKE ?"] * len(self.people(operand)))
        return (
            f"m.recipient IN (SELECT id FROM recipients WHERE {tests})",
            [f"%,{number},%" for number in sorted(self.people(operand))])

    def state(self, operand):
        if not isinstance(operand, str):
            raise bad_narrow("invalid operand")
        if operand in ("dm", "private"):
            return "m.recipient IN (SELECT id FROM recipients WHERE kind = 'direct')", []
        if operand == "resolved":
            return "m.topic LIKE '✔ %'", []
        if operand == "followed":
            return (
                "EXISTS (SELECT 1 FROM user_topics t, streams s WHERE t.user = ? AND t.policy = 3 AND t.stream = s.id"
                " AND s.recipient = m.recipient AND folded(t.topic) = folded(m.topic))"), [self.reader]
        if operand in FLAG_TERMS:
            bits, isSet = FLAG_TERMS[operand]
            return f"COALESCE(um.flags, {flags.READ}) & {bits} {'!=' if isSet else '='} 0", []
        raise bad_narrow(f"unknown 'is' operand {operand}")

    def having(self, operand):
        operand = str(operand).removesuffix("s")
        if operand == "reaction":
            return "EXISTS (SELECT 1 FROM reactions WHERE message = m.id)", []
        if operand not in ("link", "image", "attachment"):
            raise bad_narrow(f"unknown 'has' operand {operand}")
        return f"m.has_{operand}", []

    def number(self, operand):
        try:
            return "m.id = ?", [int(operand)]
        except (TypeError, ValueError):
            raise bad_narrow("invalid message ID") from None

    def conversation(self, operand):
        condition, values = self.number(operand)
        target = self.server.store.one("SELECT recipient, topic FROM messages m WHERE " + condition, *values)
        if target is None:
            return "1", []
        return "m.recipient = ? AND folded(m.topic) = ?", [target["recipient"], target["topic"].casefold()]


class QueueNarrow:
    """The narrow of an event queue: pairs, for messages only, and fewer operators."""

    OPERATORS = ("channel", "stream", "topic", "sender", "is", "dm", "pm-with")

    def __init__(self, narrow):
        self.terms = terms(narrow)
        for operator, operand, _ in self.terms:
            if operator not in self.OPERATORS:
                raise bad_narrow(f"unsupported operator {operator}")
            if isinstance(operand, list):
                raise bad_narrow("invalid operand")

    def accepts(self, message, names):
        """Whether a message passes; `message` is one of `server.messages`, `names` are the reader's flags of it."""
        for operator, operand, negated in self.terms:
            if self.test(operator, operand, message, names) == negated:
                return False
        return True

    @staticmethod
    def test(operator, operand, message, names):
        isChannel = message["type"] == "stream"
        if operator in ("channel", "stream"):
            return isChannel and str(operand).casefold() in (
                message["display_recipient"].casefold(), str(message["stream_id"]))
        if operator == "topic":
            return isChannel and message["subject"].casefold() == str(operand).casefold()
        if operator == "sender":
            return str(operand).casefold() in (message["sender_email"].casefold(), str(message["sender_id"]))
        if operator == "is":
            return {
                "dm": not isChannel, "private": not isChannel, "starred": "starred" in names,
                "unread": "read" not in names, "alerted": "has_alert_word" in names,
                "mentioned": "mentioned" in names or "wildcard_mentioned" in names,
                "resolved": message["subject"].startswith("✔ "),
            }.get(operand, False)
        emails = {person["email"] for person in message["display_recipient"]} if not isChannel else set()
        return not isChannel and set(str(operand).split(",")) <= emails
