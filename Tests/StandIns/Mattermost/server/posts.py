"""Posts: making, editing with history, deleting, lists, threads, search.

An edited post keeps its id; its previous version becomes a row with a new id, `original_id` and `delete_at`. A deleted
post keeps its text in the database; the API shows it without.
"""

import collections
import itertools
import re

from .errors import APIError, forbidden, invalid_body, invalid_url
from .hub import Event
from .reactions import emojis_of, reaction_json
from .store import is_id, new_id
from .users import marks
from .wire import PER_PAGE_DEFAULT, Routes, answer, encode, is_true, ok, typed

routes = Routes()

# The server's limits, in characters.
MESSAGE_MAXIMUM = 16383
PROPS_MAXIMUM = 800_000
FILE_IDS_MAXIMUM = 300
HASHTAGS_MAXIMUM = 1000
POSTS_SINCE_MAXIMUM = 1000
AROUND_DEFAULT = 60
AROUND_MAXIMUM = 200
# Ours: results of one page of a search.
SEARCH_MAXIMUM = 200

# Such posts count neither as unread nor as messages.
UNCOUNTED = {
    "system_join_leave", "system_add_remove", "system_join_channel", "system_leave_channel", "system_join_team",
    "system_leave_team", "system_add_to_channel", "system_remove_from_channel", "system_add_to_team",
    "system_remove_from_team",
}

MENTION = re.compile(r"(?<![\w@])@([a-z0-9][a-z0-9.\-_]*)", re.IGNORECASE)
CHANNEL_MENTION = re.compile(r"(?<![\w~])~([a-z0-9][a-z0-9_\-]*)", re.IGNORECASE)
HASHTAG = re.compile(r"(?<![\w#])#[^\W\d_][\w.\-]+[\w]")
LINK = re.compile(r"https?://[^\s<>\")\]]+")
EVERYBODY = {"all", "channel", "here"}


def hashtags_of(message):
    return " ".join(HASHTAG.findall(message))[:HASHTAGS_MAXIMUM]


class RecentPosts:
    """Posts by `pending_post_id`: a request that a client repeats makes no second post."""

    # Ours, because the machine of a test may be busy; the server's are 30 seconds.
    MILLISECONDS = 600_000
    # Ours; the server keeps 25,000.
    MAXIMUM = 2000

    def __init__(self):
        self.posts = collections.OrderedDict()

    def find(self, pending_id, now):
        entry = self.posts.get(pending_id)
        return entry[0] if entry and entry[1] > now else None

    def keep(self, pending_id, post_id, now):
        self.posts[pending_id] = (post_id, now + self.MILLISECONDS)
        while len(self.posts) > self.MAXIMUM:
            self.posts.popitem(last=False)


class Posts:
    def __init__(self, server):
        self.server = server
        self.store = server.store
        self.recent = RecentPosts()

    # Reading

    def one(self, post_id):
        post = self.store.one("SELECT * FROM posts WHERE id = ? AND delete_at = 0", post_id)
        if post is None:
            raise APIError(404, "app.post.get.app_error")
        return post

    def require_read(self, call, post_id):
        post = self.one(post_id)
        call.access.require_read(call, post["channel_id"])
        return post

    def reply_count(self, post):
        return self.store.value(
            "SELECT COUNT(*) FROM posts WHERE root_id = ? AND delete_at = 0", post["root_id"] or post["id"])

    def bare_json(self, post, reply_count=0):
        body = {
            "id": post["id"], "create_at": post["create_at"], "update_at": post["update_at"],
            "edit_at": post["edit_at"], "delete_at": post["delete_at"], "is_pinned": bool(post["is_pinned"]),
            "user_id": post["user_id"], "channel_id": post["channel_id"], "root_id": post["root_id"],
            "original_id": post["original_id"], "message": post["message"], "type": post["type"],
            "props": dict(sorted(post["props"].items())), "hashtags": post["hashtags"], "file_ids": post["file_ids"],
            "pending_post_id": "",
        }
        if post["has_reactions"]:
            body["has_reactions"] = True
        if post["remote_id"] is not None:
            body["remote_id"] = post["remote_id"]
        return body | {"reply_count": reply_count, "last_reply_at": 0, "participants": None}

    def json(self, post, viewer_id, reply_count=0, keeps_text=False):
        """A post for a client, with what belongs to it under `metadata`."""
        body = self.bare_json(post, reply_count)
        if post["delete_at"] and not keeps_text:
            body["message"] = ""
            body["metadata"] = {}
            return body
        metadata = {}
        if embeds := self._embeds(post, viewer_id):
            metadata["embeds"] = embeds
            if embeds[0]["type"] == "permalink":
                previewed = {"previewed_post": embeds[0]["data"]["post_id"]}
                body["props"] = dict(sorted((body["props"] | previewed).items()))
        reactions = self.store.all("SELECT * FROM reactions WHERE post_id = ? ORDER BY create_at", post["id"])
        if emojis := emojis_of(self.store, post["message"], reactions):
            metadata["emojis"] = emojis
        if post["file_ids"]:
            metadata["files"] = self.server.files.infos(post["file_ids"])
        if reactions:
            metadata["reactions"] = [reaction_json(row) for row in reactions]
        body["metadata"] = metadata
        return body

    def _embeds(self, post, viewer_id):
        """Attachments go first, then the first link. A link to a post brings that post with it, for who may read it."""
        if post["props"].get("attachments"):
            return [{"type": "message_attachment"}]
        link = LINK.search(post["message"])
        if link is None:
            return []
        linked = self._linked(link.group())
        if linked is None:
            return [{"type": "link", "url": link.group()}]
        channel = self.server.access.channel(linked["channel_id"])
        if not self.server.access.may_read(channel, viewer_id):
            return []
        team = self.store.one("SELECT name FROM teams WHERE id = ?", channel["team_id"])
        return [{"type": "permalink", "data": {
            "post_id": linked["id"], "post": self.bare_json(linked) | {"metadata": {}},
            "team_name": team["name"] if team else "", "channel_display_name": channel["display_name"],
            "channel_type": channel["type"], "channel_id": channel["id"],
        }}]

    def _linked(self, url):
        prefix, _, post_id = url.partition("/pl/")
        if not prefix.startswith(self.server.site_url + "/") or not is_id(post_id):
            return None
        return self.store.one("SELECT * FROM posts WHERE id = ? AND delete_at = 0", post_id)

    # Writing

    def system(self, channel, user, kind, message, props):
        return self.create(channel, user, {"message": message, "type": kind, "props": props})

    def create(self, channel, user, fields, pending_id="", remote_id=None, set_online=True):
        """Stores a post and tells the members. Returns it as the author sees it."""
        now = self.store.now()
        message, props = fields.get("message", ""), dict(fields.get("props") or {})
        root = None
        if root_id := fields.get("root_id", ""):
            root = self.store.one("SELECT * FROM posts WHERE id = ? AND delete_at = 0", root_id)
            if root is None or root["root_id"]:
                raise APIError(400, "api.post.create_post.root_id.app_error")
            if root["channel_id"] != channel["id"]:
                raise APIError(400, "api.post.create_post.channel_root_id.app_error")
        for name in ("add_channel_member", "force_notification"):
            props.pop(name, None)
        self._fill_props(props, message, channel)
        post = {
            "id": new_id(), "create_at": now, "update_at": now, "edit_at": 0, "delete_at": 0,
            "is_pinned": int(fields.get("is_pinned", False)), "user_id": user["id"], "channel_id": channel["id"],
            "root_id": root_id, "original_id": "", "message": message, "type": fields.get("type", ""), "props": props,
            "hashtags": hashtags_of(message), "file_ids": [], "has_reactions": 0, "remote_id": remote_id,
        }
        self._check(post | {"file_ids": fields.get("file_ids") or []})
        if post["type"] and not post["type"].startswith(("custom_", "system_")) and post["type"] not in (
            "me", "slack_attachment", "reminder"
        ):
            raise APIError(400, "model.post.is_valid.type.app_error")
        counts = post["type"] not in UNCOUNTED
        with self.store.transaction():
            post["file_ids"] = self.server.files.attach(
                fields.get("file_ids") or [], post["id"], channel["id"], user["id"])
            self.store.insert("posts", post)
            if counts:
                self.store.run(
                    "UPDATE channels SET last_post_at = ?1, total_msg_count = total_msg_count + 1,"
                    " total_msg_count_root = total_msg_count_root + ?2, last_root_post_at ="
                    " CASE WHEN ?2 THEN ?1 ELSE last_root_post_at END WHERE id = ?3", now, int(not root_id),
                    channel["id"])
            if root:
                self.store.run("UPDATE posts SET update_at = ? WHERE id = ?", now, root_id)
            mentioned = self._mentioned(post, channel, user)
            for id in mentioned:
                self.store.run(
                    "UPDATE channel_members SET mention_count = mention_count + 1, mention_count_root ="
                    " mention_count_root + ? WHERE channel_id = ? AND user_id = ?", int(not root_id), channel["id"], id)
            new_followers = self.server.threads.follow(post, root, mentioned) if root else set()
        if pending_id:
            self.recent.keep(pending_id, post["id"], now)
        self._publish_posted(post, channel, user, mentioned, pending_id, set_online)
        if root:
            self.server.threads.publish_reply(post, mentioned, new_followers)
        return self.json(post, user["id"], self.reply_count(post) if root else 0) | {"pending_post_id": pending_id}

    def _fill_props(self, props, message, channel):
        """Names of channels in a text: their display names go with the post, for who may see them."""
        props.pop("channel_mentions", None)
        team = self.store.one("SELECT * FROM teams WHERE id = ?", channel["team_id"])
        found = {}
        for name in dict.fromkeys(name.lower() for name in CHANNEL_MENTION.findall(message)):
            mentioned = team and self.store.one(
                "SELECT * FROM channels WHERE team_id = ? AND name = ? AND type = 'O' AND delete_at = 0", team["id"],
                name)
            if mentioned:
                found[name] = {
                    "display_name": mentioned["display_name"], "id": mentioned["id"], "team_name": team["name"]}
        if found:
            props["channel_mentions"] = found

    @staticmethod
    def _check(post):
        if len(post["message"]) > MESSAGE_MAXIMUM:
            raise APIError(400, "model.post.is_valid.message_length.app_error")
        if len(encode(post["file_ids"])) > FILE_IDS_MAXIMUM:
            raise APIError(400, "model.post.is_valid.file_ids.app_error")
        if len(encode(post["props"])) > PROPS_MAXIMUM:
            raise APIError(400, "model.post.is_valid.props.app_error")

    def _mentioned(self, post, channel, author):
        """Members whom a post concerns, without its author; all of a direct or group channel."""
        members = [id for id in self.server.channels.member_ids(channel["id"]) if id != author["id"]]
        if post["type"] == "system_add_to_channel":
            return [id for id in members if id == post["props"].get("addedUserId")]
        if post["type"].startswith("system_"):
            return []
        if channel["type"] in "DG":
            return members
        names = {name.lower().rstrip(".-_") for name in MENTION.findall(post["message"])}
        text = post["message"].lower()
        found = []
        for id in members:
            user = self.server.access.user(id)
            keys = [key.strip().lower() for key in user["notify_props"].get("mention_keys", "").split(",")]
            named = user["username"] in names or any(
                key and re.search(rf"(?<!\w){re.escape(key)}(?!\w)", text) for key in keys)
            if named or (EVERYBODY & names and user["notify_props"].get("channel") == "true"):
                found.append(id)
        return found

    def _publish_posted(self, post, channel, user, mentioned, pending_id, set_online):
        """`posted`, also to the author, whose clients know the post by its pending id."""
        name = channel["display_name"]
        if channel["type"] == "D":
            name = f"@{user['username']}"
        elif channel["type"] == "G":
            name = ", ".join(sorted(
                self.server.access.user(id)["username"] for id in self.server.channels.member_ids(channel["id"])))
        data = {
            "channel_display_name": name, "channel_name": channel["name"], "channel_type": channel["type"],
            "sender_name": "System" if post["type"].startswith("system_") else f"@{user['username']}",
            "set_online": set_online, "team_id": channel["team_id"],
        }
        if post["file_ids"]:
            data["otherFile"] = "true"
            if any(info["mime_type"].startswith("image/") for info in self.server.files.infos(post["file_ids"])):
                data["image"] = "true"
        followers = set(self.server.threads.follower_ids(post["root_id"])) - {user["id"]} if post["root_id"] else set()
        count = self.reply_count(post) if post["root_id"] else 0

        def special(user_id):
            own = {"post": encode(self.json(post, user_id, count) | {"pending_post_id": pending_id})}
            if user_id in mentioned:
                own["mentions"] = encode([user_id])
            if user_id in followers:
                own["followers"] = encode([user_id])
            return own

        self.server.hub.publish(Event("posted", data, channel_id=channel["id"], special=special))

    def change(self, post, changes, user_id):
        """Stores a new version and keeps the one before it. Tells the members."""
        new = post | changes
        now = self.store.now()
        if new["message"] != post["message"]:
            new["edit_at"] = now
            new["hashtags"] = hashtags_of(new["message"])
        elif new["file_ids"] != post["file_ids"] or new["props"].get("attachments") != post["props"].get("attachments"):
            new["edit_at"] = now
        channel = self.server.access.channel(post["channel_id"])
        self._fill_props(new["props"], new["message"], channel)
        new["update_at"] = now
        self._check(new)
        with self.store.transaction():
            if new["file_ids"] != post["file_ids"]:
                kept = [id for id in new["file_ids"] if id in post["file_ids"]]
                added = self.server.files.attach(
                    [id for id in new["file_ids"] if id not in post["file_ids"]], post["id"], post["channel_id"],
                    post["user_id"])
                for id in post["file_ids"]:
                    if id not in kept:
                        self.store.update("files", {"id": id}, {"delete_at": now})
                new["file_ids"] = kept + added
            self.store.update("posts", {"id": post["id"]}, {
                name: new[name] for name in (
                    "update_at", "edit_at", "is_pinned", "message", "props", "hashtags", "file_ids", "has_reactions")})
            self.store.run(
                "UPDATE channels SET last_post_at = ?1 WHERE id = ?2 AND last_post_at < ?1", now, channel["id"])
            if post["root_id"]:
                self.store.run("UPDATE posts SET update_at = ? WHERE id = ?", now, post["root_id"])
            self.store.insert("posts", post | {
                "id": new_id(), "original_id": post["id"], "delete_at": now, "update_at": now})
        new = self.one(post["id"])
        count = self.reply_count(new)
        self.server.hub.publish(Event(
            "post_edited", {}, channel_id=channel["id"],
            special=lambda viewer_id: {"post": encode(self.json(new, viewer_id, count))}))
        return self.json(new, user_id, count)

    def delete(self, post, by_id):
        """Hides a post and its replies. The event carries the post as it was, text and all."""
        now = self.store.now()
        event_post = encode(self.bare_json(post, self.reply_count(post)))
        with self.store.transaction():
            for row in self.store.all("SELECT * FROM posts WHERE id = ?1 OR root_id = ?1", post["id"]):
                self.store.update("posts", {"id": row["id"]}, {
                    "delete_at": row["delete_at"] or now, "update_at": now,
                    "props": row["props"] | {"deleteBy": by_id},
                })
            self.store.run("UPDATE files SET delete_at = ? WHERE post_id = ? AND delete_at = 0", now, post["id"])
            self.store.run("DELETE FROM preferences WHERE category = 'flagged_post' AND name = ?", post["id"])
            self.store.run("DELETE FROM drafts WHERE root_id = ?", post["id"])
            if post["root_id"]:
                self.store.run("UPDATE posts SET update_at = ? WHERE id = ?", now, post["root_id"])
        scope = {"channel_id": post["channel_id"]}
        self.server.hub.publish(Event("post_deleted", {"post": event_post}, admins=False, **scope))
        self.server.hub.publish(Event(
            "post_deleted", {"post": event_post, "delete_by": by_id}, admins=True, **scope))


# Lists

def post_list(call, posts, order, next_id="", prev_id="", has_next=None, collapsed=False, counts=True):
    """A list: `order` are ids, `posts` the rows, which may be more than `order` names."""
    bodies = {}
    for post in posts:
        body = call.server.posts.json(post, call.user_id, call.server.posts.reply_count(post) if counts else 0)
        if collapsed:
            body |= call.server.threads.summary(post, call.user_id, is_extended=call.flag("collapsedThreadsExtended"))
        bodies[post["id"]] = body
    body = {
        "order": order, "posts": dict(sorted(bodies.items())), "next_post_id": next_id, "prev_post_id": prev_id}
    if has_next is not None:
        body["has_next"] = has_next
    return body | {"first_inaccessible_post_time": 0}


def _neighbour(call, channel_id, time, is_after, collapsed):
    comparison, direction = (">", "ASC") if is_after else ("<", "DESC")
    only_roots = " AND root_id = ''" if collapsed else ""
    return call.store.value(
        f"SELECT id FROM posts WHERE channel_id = ? AND delete_at = 0 AND create_at {comparison} ?{only_roots}"
        f" ORDER BY create_at {direction} LIMIT 1", channel_id, time) or ""


def _around(call, channel_id, post_id, is_before, page, per_page, collapsed):
    """Posts before or after one, the newest first."""
    time = call.store.value("SELECT create_at FROM posts WHERE id = ?", post_id)
    if time is None:
        return []
    comparison, direction = ("<", "DESC") if is_before else (">", "ASC")
    only_roots = " AND root_id = ''" if collapsed else ""
    rows = call.store.all(
        f"SELECT * FROM posts WHERE channel_id = ? AND delete_at = 0 AND create_at {comparison} ?{only_roots}"
        f" ORDER BY create_at {direction} LIMIT ? OFFSET ?", channel_id, time, per_page, page * per_page)
    return rows if is_before else rows[::-1]


def _with_threads(call, rows, skips_threads, collapsed):
    """The rows and, unless threads are collapsed, the roots and the other replies of their threads."""
    if collapsed:
        return rows
    roots = list(dict.fromkeys(row["root_id"] for row in rows if row["root_id"]))
    if not roots:
        return rows
    condition = f"id IN ({marks(roots)})"
    values = list(roots)
    if not skips_threads:
        condition += f" OR root_id IN ({marks(roots)})"
        values += roots
    known = {row["id"] for row in rows}
    more = call.store.all(f"SELECT * FROM posts WHERE ({condition}) AND delete_at = 0 ORDER BY create_at", *values)
    return rows + [row for row in more if row["id"] not in known]


@routes.on("GET", "/channels/{channel_id}/posts")
async def list_posts(call):
    channel_id = call.id("channel_id")
    after, before = call.query.get("after", ""), call.query.get("before", "")
    for name, value in (("after", after), ("before", before)):
        if value and not is_id(value):
            raise invalid_body(name)
    since = call.query.get("since", "")
    try:
        since = min(int(since or 0), 2**62)
    except ValueError:
        raise invalid_body("since") from None
    if call.flag("include_deleted") and not call.access.is_admin(call.user_id):
        raise forbidden()
    call.access.require_read(call, channel_id)
    collapsed, skips = call.flag("collapsedThreads"), call.flag("skipFetchThreads")
    page, per_page = call.page, call.per_page
    if since > 0:
        # Also deleted posts and old versions, without their texts.
        only_roots = " AND root_id = ''" if collapsed else ""
        rows = call.store.all(
            f"SELECT * FROM posts WHERE channel_id = ? AND update_at > ?{only_roots} ORDER BY create_at DESC LIMIT ?",
            channel_id, since, POSTS_SINCE_MAXIMUM)
        known = {row["id"] for row in rows}
        roots = [row["root_id"] for row in rows if row["root_id"] and row["root_id"] not in known]
        more = call.store.all(f"SELECT * FROM posts WHERE id IN ({marks(roots)})", *roots) if roots else []
        return answer(post_list(
            call, rows + more, [row["id"] for row in rows], collapsed=collapsed, counts=collapsed or skips))
    if after or before:
        rows = _around(call, channel_id, after or before, not after, page, per_page, collapsed)
    else:
        deleted = "" if call.flag("include_deleted") else " AND delete_at = 0"
        only_roots = " AND root_id = ''" if collapsed else ""
        rows = call.store.all(
            f"SELECT * FROM posts WHERE channel_id = ?{deleted}{only_roots} ORDER BY create_at DESC LIMIT ? OFFSET ?",
            channel_id, per_page, page * per_page)
    next_id, prev_id = _cursors(call, channel_id, rows, after, before, page, per_page, collapsed)
    counts = bool(after or before) or collapsed or skips
    last = call.store.value("SELECT MAX(update_at) FROM posts WHERE channel_id = ?", channel_id)
    etag = f"{call.server.release}.{last}"
    if call.request.headers.get("If-None-Match") == etag:
        return answer("", 304, {"Etag": etag})
    posts = _with_threads(call, rows, skips, collapsed)
    return answer(
        post_list(call, posts, [row["id"] for row in rows], next_id, prev_id, collapsed=collapsed, counts=counts),
        headers={"Etag": etag})


def _cursors(call, channel_id, rows, after, before, page, per_page, collapsed):
    """The ids of the posts beside a page, or empty where it is known that there is none."""
    next_id = prev_id = None
    if after:
        prev_id = after if page == 0 else None
        next_id = "" if len(rows) < per_page else None
    elif before:
        next_id = before if page == 0 else None
        prev_id = "" if len(rows) < per_page else None
    if next_id is None:
        next_id = _neighbour(call, channel_id, rows[0]["create_at"], True, collapsed) if rows else ""
    if prev_id is None:
        prev_id = _neighbour(call, channel_id, rows[-1]["create_at"], False, collapsed) if rows else ""
    return next_id, prev_id


@routes.on("GET", "/users/{user_id}/channels/{channel_id}/posts/unread")
async def posts_around_unread(call):
    user_id, channel_id = call.id("user_id"), call.id("channel_id")
    call.access.require_user(call, user_id)
    call.access.require_read(call, channel_id)
    before = call.number("limit_before", AROUND_DEFAULT, AROUND_MAXIMUM)
    after = call.number("limit_after", AROUND_DEFAULT, AROUND_MAXIMUM)
    if after == 0:
        raise invalid_url("limit_after")
    collapsed, skips = call.flag("collapsedThreads"), call.flag("skipFetchThreads")
    member = call.access.member(channel_id, user_id)
    if member is None:
        raise APIError(404, "app.channel.get_member.missing.app_error")
    first = _neighbour(call, channel_id, member["last_viewed_at"], True, collapsed) if member["last_viewed_at"] else ""
    if first:
        rows = _around(call, channel_id, first, False, 0, after - 1, collapsed)
        rows += call.store.all("SELECT * FROM posts WHERE id = ?", first)
        rows += _around(call, channel_id, first, True, 0, before, collapsed)
    else:
        only_roots = " AND root_id = ''" if collapsed else ""
        rows = call.store.all(
            f"SELECT * FROM posts WHERE channel_id = ? AND delete_at = 0{only_roots} ORDER BY create_at DESC LIMIT ?",
            channel_id, before)
    next_id = _neighbour(call, channel_id, rows[0]["create_at"], True, collapsed) if rows else ""
    prev_id = _neighbour(call, channel_id, rows[-1]["create_at"], False, collapsed) if rows else ""
    return answer(post_list(
        call, _with_threads(call, rows, skips, collapsed), [row["id"] for row in rows], next_id, prev_id,
        collapsed=collapsed))


@routes.on("GET", "/channels/{channel_id}/pinned")
async def pinned(call):
    channel = call.access.require_read(call, call.id("channel_id"))
    rows = call.store.all(
        "SELECT * FROM posts WHERE channel_id = ? AND is_pinned AND delete_at = 0 ORDER BY create_at DESC",
        channel["id"])
    return answer(post_list(call, rows, [row["id"] for row in rows]))


@routes.on("GET", "/users/{user_id}/posts/flagged")
async def flagged(call):
    """Posts that a user has saved; the mark is a preference."""
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    rows = call.store.all(
        "SELECT * FROM posts WHERE delete_at = 0 AND id IN"
        " (SELECT name FROM preferences WHERE user_id = ? AND category = 'flagged_post') ORDER BY create_at DESC"
        " LIMIT ? OFFSET ?", user_id, call.per_page, call.page * call.per_page)
    found = []
    for row in rows:
        channel = call.access.channel(row["channel_id"])
        if not call.access.may_read(channel, call.user_id):
            continue
        if call.query.get("channel_id", channel["id"]) != channel["id"]:
            continue
        if not call.query.get("channel_id") and call.query.get("team_id") not in (None, "", channel["team_id"]):
            if channel["team_id"]:
                continue
        found.append(row)
    return answer(post_list(call, found, [row["id"] for row in found]))


# One post

@routes.on("POST", "/posts")
async def create_post(call):
    body = await call.body("post")
    channel_id = typed(body, "channel_id", str, "", "post")
    fields = post_fields(body)
    if not call.access.may_post(channel_id, call.user_id):
        raise forbidden()
    channel = call.access.channel(channel_id)
    if channel["delete_at"]:
        raise APIError(400, "api.post.create_post.can_not_post_to_deleted.error")
    if fields["type"].startswith("system_"):
        raise APIError(400, "api.context.invalid_param.app_error", Name="post.type")
    pending_id = typed(body, "pending_post_id", str, "", "post")
    if pending_id and (known := call.server.posts.recent.find(pending_id, call.store.now())):
        post = call.store.one("SELECT * FROM posts WHERE id = ? AND delete_at = 0", known)
        if post and call.access.may_read(call.access.channel(post["channel_id"]), call.user_id):
            return answer(call.server.posts.json(post, call.user_id, call.server.posts.reply_count(post)), 201)
    set_online = "set_online" not in call.query or is_true(call.query["set_online"])
    created = call.server.posts.create(
        channel, call.access.user(call.user_id), fields, pending_id, remote_id="", set_online=set_online)
    if not fields["root_id"]:
        call.server.channels.mark_viewed(call.user_id, [channel_id])
    if set_online:
        call.server.statuses.set_online(call.user_id)
    return answer(created, 201)


def post_fields(body):
    """What a client writes of a post."""
    file_ids = typed(body, "file_ids", list, [], "post")
    if not all(is_id(id) for id in file_ids):
        raise invalid_body("post")
    return {
        "message": typed(body, "message", str, "", "post"), "root_id": typed(body, "root_id", str, "", "post"),
        "type": typed(body, "type", str, "", "post"), "props": typed(body, "props", dict, {}, "post"),
        "file_ids": file_ids, "is_pinned": typed(body, "is_pinned", bool, False, "post"),
    }


@routes.on("POST", "/posts/ephemeral")
async def create_ephemeral(call):
    body = await call.body("body")
    if not typed(body, "user_id", str, "", "body"):
        raise invalid_body("user_id")
    if not isinstance(body.get("post"), dict):
        raise invalid_body("post")
    if not call.access.is_admin(call.user_id):
        raise forbidden()
    fields = post_fields(body["post"])
    channel_id = typed(body["post"], "channel_id", str, "", "post")
    return answer(send_ephemeral(call.server, body["user_id"], call.user_id, channel_id, fields), 201)


def send_ephemeral(server, to_id, from_id, channel_id, fields):
    """A post that only one user gets and that is not stored."""
    now = server.store.now()
    body = server.posts.bare_json({
        "id": new_id(), "create_at": now, "update_at": 0, "edit_at": 0, "delete_at": 0, "is_pinned": 0,
        "user_id": from_id, "channel_id": channel_id, "root_id": fields.get("root_id", ""), "original_id": "",
        "message": fields["message"], "type": "system_ephemeral", "props": fields.get("props") or {}, "hashtags": "",
        "file_ids": fields.get("file_ids") or [], "has_reactions": 0, "remote_id": None,
    }) | {"metadata": {}}
    server.hub.publish(Event("ephemeral_message", {"post": encode(body)}, channel_id=channel_id, user_id=to_id))
    return body


@routes.on("GET", "/posts/{post_id}")
async def get_post(call):
    post = call.server.posts.require_read(call, call.id("post_id"))
    return answer(call.server.posts.json(post, call.user_id, call.server.posts.reply_count(post)))


@routes.on("POST", "/posts/ids")
async def posts_by_ids(call):
    ids = await call.array("post_ids")
    if len(ids) > 1000:
        raise APIError(400, "api.post.posts_by_ids.invalid_body.request_error")
    rows = call.store.all(
        f"SELECT * FROM posts WHERE id IN ({marks(ids)}) AND delete_at = 0 ORDER BY create_at DESC", *ids)
    found = [row for row in rows if call.access.may_read(call.access.channel(row["channel_id"]), call.user_id)]
    return answer([
        call.server.posts.json(row, call.user_id, call.server.posts.reply_count(row)) for row in found])


def _own(call, post_id):
    """A post that the caller may edit. One that is not there is forbidden, as on the server."""
    post = call.store.one("SELECT * FROM posts WHERE id = ? AND delete_at = 0", post_id)
    if post is None or not call.access.may_post(post["channel_id"], call.user_id):
        raise forbidden()
    channel = call.access.channel(post["channel_id"])
    if post["user_id"] != call.user_id and not call.access.is_team_admin(channel["team_id"], call.user_id):
        raise forbidden()
    return post, channel


@routes.on("PUT", "/posts/{post_id}")
async def update_post(call):
    """The whole post: props and the pin that are left out are gone; files stay if they are left out."""
    post_id = call.id("post_id")
    body = await call.body("post")
    if body.get("id") != post_id:
        raise invalid_body("id")
    fields = post_fields(body)
    post, channel = _own(call, post_id)
    _require_editable(post, channel, "api.post.update_post.can_not_update_post_in_deleted.error")
    changes = {name: fields[name] for name in ("message", "props", "is_pinned")}
    changes["file_ids"] = fields["file_ids"] if body.get("file_ids") is not None else post["file_ids"]
    changes["has_reactions"] = int(typed(body, "has_reactions", bool, False, "post"))
    return answer(call.server.posts.change(post, changes, call.user_id))


@routes.on("PUT", "/posts/{post_id}/patch")
async def patch_post(call):
    post_id = call.id("post_id")
    body = await call.body("post")
    fields = post_fields(body)
    post, channel = _own(call, post_id)
    _require_editable(post, channel, "api.post.patch_post.can_not_update_post_in_deleted.error")
    changes = {
        name: fields[name] for name in ("message", "props", "is_pinned", "file_ids") if body.get(name) is not None}
    return answer(call.server.posts.change(post, changes, call.user_id))


def _require_editable(post, channel, archived):
    if post["type"].startswith("system_"):
        raise APIError(400, "api.post.update_post.system_message.app_error")
    if channel["delete_at"]:
        raise APIError(400, archived)


@routes.on("DELETE", "/posts/{post_id}")
async def delete_post(call):
    post = call.server.posts.one(call.id("post_id"))
    call.access.require_post(call, post["channel_id"])
    channel = call.access.channel(post["channel_id"])
    if post["user_id"] != call.user_id and not call.access.is_team_admin(channel["team_id"], call.user_id):
        raise forbidden()
    if channel["delete_at"]:
        raise APIError(400, "api.post.delete_post.can_not_delete_post_in_deleted.error")
    call.server.posts.delete(post, call.user_id)
    return ok()


async def _pin(call, is_pinned):
    post = call.server.posts.require_read(call, call.id("post_id"))
    call.access.require_post(call, post["channel_id"])
    call.server.posts.change(post, {"is_pinned": int(is_pinned)}, call.user_id)
    return ok()


@routes.on("POST", "/posts/{post_id}/pin")
async def pin_post(call):
    return await _pin(call, True)


@routes.on("POST", "/posts/{post_id}/unpin")
async def unpin_post(call):
    return await _pin(call, False)


@routes.on("GET", "/posts/{post_id}/edit_history")
async def edit_history(call):
    post = call.store.one("SELECT * FROM posts WHERE id = ? AND delete_at = 0", call.id("post_id"))
    if post is None or post["user_id"] != call.user_id or not call.access.may_post(post["channel_id"], call.user_id):
        raise forbidden()
    rows = call.store.all("SELECT * FROM posts WHERE original_id = ? ORDER BY edit_at DESC, update_at DESC", post["id"])
    if not rows:
        raise APIError(404, "app.post.get.app_error")
    return answer([
        call.server.posts.bare_json(row)
        | ({"metadata": {"files": call.server.files.infos(row["file_ids"])}} if row["file_ids"] else {})
        for row in rows
    ])


@routes.on("POST", "/posts/{post_id}/restore/{version_id}")
async def restore_version(call):
    post, channel = _own(call, call.id("post_id"))
    if post["user_id"] != call.user_id:
        raise forbidden()
    version = call.store.one(
        "SELECT * FROM posts WHERE id = ? AND original_id = ?", call.id("version_id"), post["id"])
    if version is None:
        raise APIError(404, "app.post.get.app_error")
    changes = {"message": version["message"], "file_ids": version["file_ids"]}
    return answer(call.server.posts.change(post, changes, call.user_id))


@routes.on("GET", "/posts/{post_id}/files/info")
async def files_of_post(call):
    post = call.server.posts.require_read(call, call.id("post_id"))
    return answer(call.server.files.infos(post["file_ids"]))


@routes.on("POST", "/users/{user_id}/posts/{post_id}/set_unread")
async def set_unread(call):
    user_id = call.id("user_id")
    call.access.require_user(call, user_id)
    post = call.store.one("SELECT * FROM posts WHERE id = ? AND delete_at = 0", call.id("post_id"))
    if post is None or not call.access.may_read(call.access.channel(post["channel_id"]), call.user_id):
        raise forbidden()
    channel, member = call.access.channel(post["channel_id"]), call.access.member(post["channel_id"], user_id)
    if member is None:
        raise APIError(404, "app.channel.get_member.missing.app_error")
    unread = [row for row in call.store.all(
        "SELECT * FROM posts WHERE channel_id = ? AND create_at >= ? AND delete_at = 0", channel["id"],
        post["create_at"]) if row["type"] not in UNCOUNTED]
    roots = sum(not row["root_id"] for row in unread)
    last_viewed = post["create_at"] - 1
    call.store.update("channel_members", {"channel_id": channel["id"], "user_id": user_id}, {
        "last_viewed_at": last_viewed, "msg_count": channel["total_msg_count"] - len(unread),
        "msg_count_root": channel["total_msg_count_root"] - roots, "last_update_at": call.store.now(),
    })
    state = {
        "team_id": channel["team_id"], "user_id": user_id, "channel_id": channel["id"],
        "msg_count": channel["total_msg_count"] - len(unread), "mention_count": member["mention_count"],
        "mention_count_root": member["mention_count_root"], "urgent_mention_count": 0,
        "msg_count_root": channel["total_msg_count_root"] - roots, "last_viewed_at": last_viewed,
    }
    call.hub.publish(Event("post_unread", {
        name: state[name] for name in (
            "msg_count", "msg_count_root", "mention_count", "mention_count_root", "urgent_mention_count",
            "last_viewed_at")
    } | {"post_id": post["id"]}, team_id=channel["team_id"], channel_id=channel["id"], user_id=user_id))
    return answer(state)


# Search

TERM = re.compile(r"(-?)(?:(from|in):)?(?:\"([^\"]*)\"|(\S+))", re.IGNORECASE)


async def _search(call, team_ids):
    """Words, phrases, `word*`, `-word`, `#hashtag`, `from:`, `in:`; in all channels that the caller is in."""
    unreadable = APIError(400, "api.post.search_posts.invalid_body.app_error")
    body = await call.json(unreadable)
    if not isinstance(body, dict):
        raise unreadable
    terms = typed(body, "terms", str, "", "terms")
    if not terms:
        raise invalid_body("terms")
    page, per_page = typed(body, "page", int, 0, "page"), typed(body, "per_page", int, PER_PAGE_DEFAULT, "per_page")
    if page < 0 or not 0 <= per_page <= SEARCH_MAXIMUM:
        raise invalid_body("page")
    wanted, unwanted, authors, places = [], [], set(), set()
    for minus, key, phrase, word in TERM.findall(terms):
        text = (phrase or word).lower()
        if key.lower() == "from":
            authors.add(text.lstrip("@"))
        elif key.lower() == "in":
            places.add(text.lstrip("~"))
        else:
            (unwanted if minus else wanted).append(_pattern(text))
    combine = any if typed(body, "is_or_search", bool, False, "search") else all
    rows = call.store.each(
        "SELECT p.*, u.username, c.name AS channel_name FROM posts p JOIN channels c ON c.id = p.channel_id"
        " JOIN users u ON u.id = p.user_id JOIN channel_members m ON m.channel_id = p.channel_id AND m.user_id = ?"
        " WHERE p.delete_at = 0 AND p.type NOT LIKE 'system\\_%' ESCAPE '\\'"
        f" AND (c.team_id = '' OR c.team_id IN ({marks(team_ids)})) AND (c.delete_at = 0 OR ?)"
        " ORDER BY p.create_at DESC", call.user_id, *team_ids,
        typed(body, "include_deleted_channels", bool, False, "search"))
    matching = (
        row for row in rows
        if (not authors or row["username"] in authors) and (not places or row["channel_name"] in places)
        and (not wanted or combine(pattern.search(row["message"]) for pattern in wanted))
        and not any(pattern.search(row["message"]) for pattern in unwanted))
    found = list(itertools.islice(matching, page * per_page, (page + 1) * per_page))
    result = post_list(call, found, [row["id"] for row in found]) | {"matches": None}
    return answer(result, headers={"Cache-Control": "no-cache, no-store, must-revalidate"})


def _pattern(text):
    if text.endswith("*"):
        return re.compile(rf"(?<!\w){re.escape(text.rstrip('*'))}", re.IGNORECASE)
    return re.compile(rf"(?<!\w){re.escape(text)}(?!\w)", re.IGNORECASE)


@routes.on("POST", "/teams/{team_id}/posts/search")
async def search_in_team(call):
    team_id = call.id("team_id")
    call.access.require_team(call, team_id)
    return await _search(call, [team_id])


@routes.on("POST", "/posts/search")
async def search_in_all_teams(call):
    return await _search(call, [row["team_id"] for row in call.store.all(
        "SELECT team_id FROM team_members WHERE user_id = ? AND delete_at = 0", call.user_id)])
