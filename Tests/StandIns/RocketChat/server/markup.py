"""What the server makes of a text: its parsed form `md`, its URLs, and whom it mentions.

`md` has the node types of the documentation's message parser. Blocks: PARAGRAPH, HEADING, CODE, QUOTE, ORDERED_LIST,
UNORDERED_LIST, TASKS, BIG_EMOJI, LINE_BREAK. In lines: PLAIN_TEXT, BOLD, ITALIC, STRIKE, INLINE_CODE, LINK, EMOJI,
MENTION_USER, MENTION_CHANNEL. Not: KATEX, COLOR, TIMESTAMP, SPOILER, IMAGE, emoticons, numbers of telephones.
"""

import re

EMOJI = {
    "smile", "grin", "thumbsup", "+1", "-1", "thumbsdown", "heart", "tada", "rocket", "nerd", "smirk", "wave", "eyes",
    "white_check_mark", "x", "fire", "ok", "clap", "thinking", "laughing",
}

URL = re.compile(r"(?:https?|ftp)://[^\s<>\"'`)\]]+[^\s<>\"'`)\].,;:!?]")
MENTION = r"[0-9a-zA-Z._-]*[0-9a-zA-Z_-]"
INLINE = re.compile(
    r"(?P<code>`[^`\n]+`)"
    r"|(?P<link>\[[^\]\n]+\]\([^)\s]+\))"
    r"|(?P<url>" + URL.pattern + r")"
    r"|(?P<bold>\*\*[^*\n]+\*\*|(?<!\w)\*[^*\n]+\*(?!\w))"
    r"|(?P<italic>__[^_\n]+__|(?<!\w)_[^_\n]+_(?!\w))"
    r"|(?P<strike>~~[^~\n]+~~|(?<!\w)~[^~\n]+~(?!\w))"
    r"|(?P<user>(?<!\w)@" + MENTION + r")"
    r"|(?P<channel>(?<!\w)#" + MENTION + r")"
    r"|(?P<emoji>:[a-z0-9_+-]+:)")


def plain(text):
    return {"type": "PLAIN_TEXT", "value": text}


def inlines(text):
    nodes = []
    end = 0

    def add(node):
        if node["type"] == "PLAIN_TEXT" and nodes and nodes[-1]["type"] == "PLAIN_TEXT":
            nodes[-1]["value"] += node["value"]
        else:
            nodes.append(node)

    for match in INLINE.finditer(text):
        if match.start() > end:
            add(plain(text[end:match.start()]))
        add(inline(match.lastgroup, match.group()))
        end = match.end()
    if end < len(text):
        add(plain(text[end:]))
    return nodes


def inline(kind, text):
    if kind == "code":
        return {"type": "INLINE_CODE", "value": plain(text[1:-1])}
    if kind == "link":
        label, source = re.fullmatch(r"\[([^\]]+)\]\(([^)]+)\)", text).groups()
        return {"type": "LINK", "value": {"src": plain(source), "label": [plain(label)]}}
    if kind == "url":
        return {"type": "LINK", "value": {"src": plain(text), "label": [plain(text)]}}
    if kind == "user":
        return {"type": "MENTION_USER", "value": plain(text[1:])}
    if kind == "channel":
        return {"type": "MENTION_CHANNEL", "value": plain(text[1:])}
    if kind == "emoji":
        return {"type": "EMOJI", "value": plain(text[1:-1]), "shortCode": text[1:-1]}
    mark = 2 if text[:2] == text[0] * 2 else 1
    return {"type": kind.upper(), "value": inlines(text[mark:-mark])}


def items(lines, pattern):
    return [inlines(re.match(pattern, line).group(1)) for line in lines]


def taken(lines, start, pattern):
    end = start
    while end < len(lines) and re.match(pattern, lines[end]):
        end += 1
    return lines[start:end]


def parse(text):
    emoji = re.findall(r":([a-z0-9_+-]+):", text)
    if 0 < len(emoji) <= 3 and re.fullmatch(r"\s*(:[a-z0-9_+-]+:\s*)+", text):
        return [{"type": "BIG_EMOJI", "value": [inline("emoji", f":{name}:") for name in emoji]}]
    lines = text.split("\n")
    blocks = []
    at = 0
    while at < len(lines):
        line = lines[at]
        if line.startswith("```") and (end := next(
                (i for i in range(at + 1, len(lines)) if lines[i].strip() == "```"), None)):
            blocks.append({
                "type": "CODE", "language": line[3:].strip() or "none",
                "value": [{"type": "CODE_LINE", "value": plain(part)} for part in lines[at + 1:end]]})
            at = end + 1
        elif match := re.match(r"(#{1,4}) (.+)", line):
            blocks.append({"type": "HEADING", "level": len(match[1]), "value": [plain(match[2])]})
            at += 1
        elif part := taken(lines, at, r">"):
            blocks.append({
                "type": "QUOTE",
                "value": [{"type": "PARAGRAPH", "value": value} for value in items(part, r">\s?(.*)")]})
            at += len(part)
        elif part := taken(lines, at, r"- \[[ x]\] "):
            blocks.append({"type": "TASKS", "value": [
                {"type": "TASK", "status": row[3] == "x", "value": inlines(row[6:])} for row in part]})
            at += len(part)
        elif part := taken(lines, at, r"[-*] "):
            blocks.append({"type": "UNORDERED_LIST", "value": [
                {"type": "LIST_ITEM", "value": value} for value in items(part, r"[-*] (.*)")]})
            at += len(part)
        elif part := taken(lines, at, r"\d+\. "):
            blocks.append({"type": "ORDERED_LIST", "value": [
                {"type": "LIST_ITEM", "value": inlines(row.split(". ", 1)[1]), "number": int(row.split(".")[0])}
                for row in part]})
            at += len(part)
        elif line == "":
            blocks.append({"type": "LINE_BREAK"})
            at += 1
        else:
            blocks.append({"type": "PARAGRAPH", "value": inlines(line)})
            at += 1
    return blocks


def without_code(text):
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def urls(text):
    return list(dict.fromkeys(URL.findall(without_code(text))))


def mentioned_users(text):
    return list(dict.fromkeys(re.findall(r"(?:^|\s|>)@(" + MENTION + ")", without_code(text))))


def mentioned_channels(text):
    return list(dict.fromkeys(re.findall(r"(?:^|\s|>)#(" + MENTION + ")", without_code(text))))
