"""Zulip's Markdown to HTML: the constructs that README.md lists. Everything else stays text, escaped."""

import html
import re
from dataclasses import dataclass, field

from .emoji import CODES

NESTING_LIMIT = 16

FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,})[ ]*(?P<language>[^`~\n]*)$")
HEADING = re.compile(r"^(#{1,6})[ ]+(.+?)[ ]*#*$")
BULLET = re.compile(r"^([ ]*)[*+-][ ]+(.*)$")
NUMBERED = re.compile(r"^([ ]*)(\d+)\.[ ]+(.*)$")
INLINE = re.compile(
    r"(?P<ticks>`{1,8})(?P<code>.+?)(?<!`)(?P=ticks)(?!`)"
    r"|(?<![\w])@(?P<silent>_?)\*\*(?P<mention>[^*\n]+)\*\*"
    r"|(?<![\w])\#\*\*(?P<channel>[^*>\n]+)(?:>(?P<topic>[^*@\n]*)(?:@(?P<near>\d+))?)?\*\*"
    r"|\[(?P<label>[^\[\]\n]+)\]\((?P<target>[^\s()]+)(?:\s+\"(?P<title>[^\"\n]*)\")?\)"
    r"|<time:(?P<time>[^>\n]+)>"
    r"|(?P<url>https?://[^\s<>\"'`]*[^\s<>\"'`.,;:!?)*~])"
    r"|:(?P<emoji>[a-z0-9_+-]+):"
    r"|\*\*\*(?P<both>[^\s*](?:[^*\n]*[^\s*])?)\*\*\*"
    r"|\*\*(?P<strong>[^\s*](?:.*?[^\s])?)\*\*(?!\*)"
    r"|(?<![\w*])\*(?P<emphasis>[^\s*](?:[^*\n]*[^\s*])?)\*(?![\w*])"
    r"|~~(?P<struck>[^~\n]+)~~"
    r"|(?P<newline>\n)")
SAFE_TARGET = re.compile(r"^(https?://|ftp://|mailto:|/(?!/)|#narrow/)", re.IGNORECASE)
UPLOAD = re.compile(r"/user_uploads/(\d+/[0-9a-f]{2}/[A-Za-z0-9_-]+/[^\s()\]\"<>]+)")
IMAGE = re.compile(r"\.(png|jpe?g|gif|webp|bmp)$", re.IGNORECASE)


@dataclass
class Rendered:
    html: str = ""
    mentions: set = field(default_factory=set)
    names_all: bool = False
    names_topic: bool = False
    has_link: bool = False
    has_image: bool = False
    uploads: set = field(default_factory=set)


def escaped(text):
    return html.escape(text, quote=False)


def topic_escaped(text):
    """The encoding of a topic or of a channel's name in a link within the app."""
    return "".join(
        character if character.isascii() and (character.isalnum() or character in "-_~")
        else "".join(f".{byte:02X}" for byte in character.encode())
        for character in text)


class Renderer:
    """Renders one text. `people` finds users by name and id, `channels` finds channels by name."""

    def __init__(self, people, channels):
        self.people = people
        self.channels = channels
        self.result = Rendered()

    def render(self, text):
        self.result.html = self.blocks(text.replace("\r\n", "\n").split("\n"), 0)
        self.result.uploads = {path.rstrip(".,;:!?") for path in UPLOAD.findall(text)}
        self.result.has_image = any(IMAGE.search(path) for path in self.result.uploads)
        return self.result

    # MARK: Blocks

    def blocks(self, lines, depth):
        if depth > NESTING_LIMIT:
            return f"<p>{escaped(' '.join(lines))}</p>"
        parts = []
        paragraph = []

        def close():
            if paragraph:
                parts.append(f"<p>{self.inline(chr(10).join(paragraph))}</p>")
                paragraph.clear()

        position = 0
        while position < len(lines):
            line = lines[position]
            fence = FENCE.match(line)
            if fence:
                close()
                end = self.end_of_fence(lines, position, fence["fence"])
                parts.append(self.fenced(fence["language"].strip(), lines[position + 1:end], depth))
                position = end + 1
                continue
            if not line.strip():
                close()
            elif heading := HEADING.match(line):
                close()
                level = len(heading[1])
                parts.append(f"<h{level}>{self.inline(heading[2])}</h{level}>")
            elif re.match(r"^(-{3,}|\*{3,}|_{3,})[ ]*$", line):
                close()
                parts.append("<hr>")
            elif line.startswith(">"):
                close()
                end = position
                while end < len(lines) and lines[end].startswith(">"):
                    end += 1
                quoted = [re.sub(r"^>[ ]?", "", each) for each in lines[position:end]]
                parts.append(self.quote(quoted, depth))
                position = end
                continue
            elif BULLET.match(line) or NUMBERED.match(line):
                close()
                end = position
                while end < len(lines) and lines[end].strip() and not FENCE.match(lines[end]):
                    end += 1
                parts.append(self.listing(lines[position:end], depth))
                position = end
                continue
            else:
                paragraph.append(line)
            position += 1
        close()
        return "\n".join(parts)

    @staticmethod
    def end_of_fence(lines, start, fence):
        for index in range(start + 1, len(lines)):
            if lines[index].rstrip() == fence:
                return index
        return len(lines)

    def fenced(self, language, lines, depth):
        if language in ("quote", "quoted"):
            return self.quote(lines, depth)
        if language == "spoiler" or language.startswith("spoiler "):
            header = language.removeprefix("spoiler").strip()
            inner = f"\n<p>{self.inline(header)}</p>\n" if header else "\n"
            return (
                f'<div class="spoiler-block"><div class="spoiler-header">{inner}</div>'
                f'<div class="spoiler-content" aria-hidden="true">\n{self.blocks(lines, depth + 1)}\n</div></div>')
        attribute = f' data-code-language="{html.escape(language)}"' if language else ""
        code = "".join(escaped(line) + "\n" for line in lines)
        return f'<div class="codehilite"{attribute}><pre><span></span><code>{code}</code></pre></div>'

    def quote(self, lines, depth):
        return f"<blockquote>\n{self.blocks(lines, depth + 1)}\n</blockquote>"

    def listing(self, lines, depth):
        """A list; lines that are indented further than its first belong to the item before them."""
        first = BULLET.match(lines[0]) or NUMBERED.match(lines[0])
        indent = len(first[1])
        ordered = NUMBERED.match(lines[0]) is not None
        items = []
        for line in lines:
            marker = BULLET.match(line) or NUMBERED.match(line)
            if marker and len(marker[1]) <= indent:
                items.append((marker[marker.lastindex], []))
            else:
                items[-1][1].append(line)
        parts = []
        for text, rest in items:
            inner = self.inline(text)
            if rest and depth < NESTING_LIMIT and (BULLET.match(rest[0]) or NUMBERED.match(rest[0])):
                inner += "\n" + self.listing(rest, depth + 1) + "\n"
            elif rest:
                inner += "".join("<br>\n" + self.inline(line.strip()) for line in rest)
            parts.append(f"<li>{inner}</li>")
        start = f' start="{int(first[2])}"' if ordered and int(first[2]) != 1 else ""
        name = "ol" if ordered else "ul"
        return f"<{name}{start}>\n" + "\n".join(parts) + f"\n</{name}>"

    # MARK: Inline

    def inline(self, text, depth=0):
        parts = []
        position = 0
        for match in INLINE.finditer(text):
            parts.append(escaped(text[position:match.start()]))
            parts.append(self.span(match, depth))
            position = match.end()
        parts.append(escaped(text[position:]))
        return "".join(parts)

    def span(self, match, depth):
        kind = match.lastgroup
        if depth > NESTING_LIMIT:
            return escaped(match[0])
        if match["code"] is not None:
            return f"<code>{escaped(match['code'].strip())}</code>"
        if match["mention"] is not None:
            return self.mention(match)
        if match["channel"] is not None:
            return self.channel_link(match)
        if match["label"] is not None:
            return self.link(match, depth)
        if kind == "time":
            moment = match["time"]
            return f'<time datetime="{html.escape(moment)}">{escaped(moment)}</time>'
        if kind == "url":
            self.result.has_link = True
            return f'<a href="{html.escape(match["url"])}">{escaped(match["url"])}</a>'
        if kind == "emoji":
            name = match["emoji"]
            if name not in CODES:
                return escaped(match[0])
            shown = name.replace("_", " ")
            return (
                f'<span aria-label="{shown}" class="emoji emoji-{CODES[name]}" role="img" title="{shown}">'
                f":{name}:</span>")
        if kind == "newline":
            return "<br>\n"
        for group, opening, closing in (
                ("both", "<strong><em>", "</em></strong>"), ("strong", "<strong>", "</strong>"),
                ("emphasis", "<em>", "</em>"), ("struck", "<del>", "</del>")):
            if match[group] is not None:
                return opening + self.inline(match[group], depth + 1) + closing
        return escaped(match[0])

    def mention(self, match):
        name, silent = match["mention"], bool(match["silent"])
        if name in ("all", "everyone", "channel", "stream"):
            if silent:
                return f'<span class="user-mention channel-wildcard-mention silent" data-user-id="*">{name}</span>'
            self.result.names_all = True
            return f'<span class="user-mention channel-wildcard-mention" data-user-id="*">@{name}</span>'
        if name == "topic":
            if silent:
                return f'<span class="topic-mention silent">{name}</span>'
            self.result.names_topic = True
            return f'<span class="topic-mention">@{name}</span>'
        person = self.people(name)
        if person is None:
            return escaped(match[0])
        if silent:
            shown, style = person["full_name"], "user-mention silent"
        else:
            self.result.mentions.add(person["id"])
            shown, style = "@" + person["full_name"], "user-mention"
        return f'<span class="{style}" data-user-id="{person["id"]}">{escaped(shown)}</span>'

    def channel_link(self, match):
        channel = self.channels(match["channel"])
        if channel is None:
            return escaped(match[0])
        place = f'/#narrow/channel/{channel["id"]}-{topic_escaped(channel["name"].replace(" ", "-"))}'
        shown = "#" + channel["name"]
        style = "stream"
        if match["topic"] is not None:
            place += "/topic/" + topic_escaped(match["topic"])
            shown += " > " + match["topic"]
            style = "stream-topic"
        if match["near"] is not None:
            place += "/near/" + match["near"]
            shown += " @ 💬"
            style = "message-link"
        number = "" if style == "message-link" else f' data-stream-id="{channel["id"]}"'
        return f'<a class="{style}"{number} href="{place}">{escaped(shown)}</a>'

    def link(self, match, depth):
        if not SAFE_TARGET.match(match["target"]):
            return escaped(match[0])
        self.result.has_link = True
        title = f' title="{html.escape(match["title"])}"' if match["title"] else ""
        return f'<a href="{html.escape(match["target"])}"{title}>{self.inline(match["label"], depth + 1)}</a>'


def highlighted(markup, words):
    """HTML with the words of a search marked, outside of tags."""
    pattern = re.compile("|".join(
        rf"(?<!\w){re.escape(escaped(word))}(?!\w)" for word in sorted(words, key=len, reverse=True)), re.IGNORECASE)
    return "".join(
        piece if piece.startswith("<") else pattern.sub(
            lambda match: f'<span class="highlight">{match[0]}</span>', piece)
        for piece in re.split(r"(<[^>]*>)", markup))
