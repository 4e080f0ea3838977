"""Threads: who follows them, what of them is unread, and the events that tell it."""

from .errors import APIError, forbidden
from .hub import Event
from .posts import post_list
from .users import bare_user_json, user_json
from .wire import Routes, answer, encode, ok

routes = Routes()


class Threads:
    def __init__(self, server):
        self.server = server
        self.store = server.store

    def follower_ids(self, root_id):
        return [row["user_id"] for row in self.store.all(
            "SELECT user_id FROM thread_memberships WHERE post_id = ? AND following ORDER BY rowid", root_id)]

    def membership(self, root_id, user_id):
        return self.store.one("SELECT * FROM thread_memberships WHERE post_id = ? AND user_id = ?", root_id, user_id)

    def follow(self, reply, root, mentioned):
        """The author of the root, of the reply and who is mentioned follow from now on. Returns the new ones."""
        new = set()
        now = reply["create_at"]
        for user_id in dict.fromkeys((reply["user_id"], root["user_id"], *mentioned)):
            if self.server.access.member(root["channel_id"], user_id) is None:
                continue
            if self.membership(root["id"], user_id) is None:
                self.store.insert("thread_memberships", {
                    "post_id": root["id"], "user_id": user_id, "following": 1, "last_viewed": 0, "last_updated": now,
                    "unread_mentions": 0,
                })
                new.add(user_id)
            elif user_id in mentioned:
                self.set_following(root["id"], user_id, True)
            if user_id in mentioned:
                self.store.run(
                    "UPDATE thread_memberships SET unread_mentions = unread_mentions + 1 WHERE post_id = ?"
                    " AND user_id = ?", root["id"], user_id)
            if user_id == reply["user_id"]:
                self.store.run(
                    "UPDATE thread_memberships SET last_viewed = ?, unread_mentions = 0 WHERE post_id = ?"
                    " AND user_id = ?", now, root["id"], user_id)
        return new

    def set_following(self, root_id, user_id, is_following):
        if self.membership(root_id, user_id):
            self.store.update(
                "thread_memberships", {"post_id": root_id, "user_id": user_id}, {"following": int(is_following)})
        else:
            now = self.store.now()
            self.store.insert("thread_memberships", {
                "post_id": root_id, "user_id": user_id, "following": int(is_following), "last_viewed": now,
                "last_updated": now, "unread_mentions": 0,
            })

    def _replies(self, root_id):
        return self.store.all(
            "SELECT user_id, create_at FROM posts WHERE root_id = ? AND delete_at = 0 ORDER BY create_at", root_id)

    def _participants(self, root_id, viewer_id, is_extended):
        ids = list(dict.fromkeys(row["user_id"] for row in self._replies(root_id)))
        if is_extended:
            return [user_json(self.server.access.user(id), False) for id in ids]
        return [bare_user_json(id) for id in ids]

    def summary(self, root, viewer_id, is_extended):
        """What a root carries in lists whose threads are collapsed."""
        if root["root_id"]:
            return {}
        replies = self._replies(root["id"])
        membership = self.membership(root["id"], viewer_id)
        body = {
            "reply_count": len(replies), "last_reply_at": replies[-1]["create_at"] if replies else 0,
            "participants": self._participants(root["id"], viewer_id, is_extended) or None,
        }
        if membership:
            body["is_following"] = bool(membership["following"])
        return body

    def json(self, root, membership, viewer_id, is_extended=True):
        """A thread for one user, with its root: its text travels here too."""
        replies = self._replies(root["id"])
        unread = [row for row in replies if row["create_at"] > membership["last_viewed"]]
        return {
            "id": root["id"], "reply_count": len(replies),
            "last_reply_at": replies[-1]["create_at"] if replies else 0, "last_viewed_at": membership["last_viewed"],
            "participants": self._participants(root["id"], viewer_id, is_extended),
            "post": self.server.posts.json(root, viewer_id), "unread_replies": len(unread),
            "unread_mentions": membership["unread_mentions"], "is_urgent": False, "delete_at": root["delete_at"],
        }

    def publish_reply(self, reply, mentioned, new_followers):
        root = self.server.posts.one(reply["root_id"])
        team_id = self.server.access.channel(root["channel_id"])["team_id"]
        for user_id in self.follower_ids(root["id"]):
            thread = self.json(root, self.membership(root["id"], user_id), user_id)
            before_replies = before_mentions = 0
            if user_id not in new_followers:
                before_replies = max(thread["unread_replies"] - 1, 0)
                before_mentions = max(thread["unread_mentions"] - (user_id in mentioned), 0)
            self.server.hub.publish(Event("thread_updated", {
                "previous_unread_mentions": before_mentions, "previous_unread_replies": before_replies,
                "thread": encode(thread),
            }, team_id=team_id, user_id=user_id))


@routes.on("GET", "/posts/{post_id}/thread")
async def get_thread(call):
    """The root and its replies; `order` names the asked post first."""
    asked = call.server.posts.require_read(call, call.id("post_id"))
    root_id = asked["root_id"] or asked["id"]
    condition, values = "(id = ?1 OR root_id = ?1) AND delete_at = 0", [root_id]
    direction = call.query.get("direction", "")
    comparison = ">" if direction == "down" else "<"
    for name, column in (("fromCreateAt", "create_at"), ("fromUpdateAt", "update_at")):
        if time := call.number(name, 0):
            values.append(time)
            condition += f" AND {column} {comparison} ?{len(values)}"
    sort = {"up": "DESC", "down": "ASC"}.get(direction, "ASC")
    per_page = call.number("perPage", 0, 200)
    rows = call.store.all(
        f"SELECT * FROM posts WHERE {condition} ORDER BY create_at {sort} LIMIT {per_page + 1 if per_page else -1}",
        *values)
    has_next = bool(per_page) and len(rows) > per_page
    rows = [row for row in (rows[:per_page] if has_next else rows) if row["id"] != asked["id"]]
    return answer(post_list(
        call, [asked, *rows], [asked["id"], *(row["id"] for row in rows)], has_next=has_next,
        collapsed=call.flag("collapsedThreads")))


def _own_thread(call):
    user_id, team_id = call.id("user_id"), call.id("team_id")
    call.access.require_user(call, user_id)
    call.access.require_team(call, team_id)
    root = call.server.posts.require_read(call, call.id("thread_id"))
    return user_id, team_id, root


@routes.on("GET", "/users/{user_id}/teams/{team_id}/threads")
async def list_threads(call):
    user_id, team_id = call.id("user_id"), call.id("team_id")
    call.access.require_user(call, user_id)
    call.access.require_team(call, team_id)
    rows = call.store.all(
        "SELECT p.* FROM posts p JOIN thread_memberships t ON t.post_id = p.id JOIN channels c ON c.id = p.channel_id"
        " WHERE t.user_id = ? AND t.following AND c.team_id IN (?, '') AND p.delete_at = 0 ORDER BY p.update_at DESC",
        user_id, team_id)
    threads = [
        call.server.threads.json(
            row, call.server.threads.membership(row["id"], user_id), user_id, is_extended=call.flag("extended"))
        for row in rows
    ]
    if call.flag("unread"):
        threads = [thread for thread in threads if thread["unread_replies"]]
    shown = threads[:call.number("per_page", 30, 200)]
    return answer({
        "total": len(threads), "total_unread_threads": sum(bool(thread["unread_replies"]) for thread in threads),
        "total_unread_mentions": sum(thread["unread_mentions"] for thread in threads),
        "total_unread_urgent_mentions": 0, "threads": shown,
    })


@routes.on("GET", "/users/{user_id}/teams/{team_id}/threads/{thread_id}")
async def get_user_thread(call):
    user_id, _, root = _own_thread(call)
    membership = call.server.threads.membership(root["id"], user_id)
    if membership is None:
        raise APIError(404, "app.post.get.app_error")
    return answer(call.server.threads.json(root, membership, user_id, is_extended=call.flag("extended")))


async def _follow(call, is_following):
    user_id, team_id, root = _own_thread(call)
    call.server.threads.set_following(root["id"], user_id, is_following)
    call.hub.publish(Event("thread_follow_changed", {
        "thread_id": root["id"], "state": is_following, "reply_count": call.server.posts.reply_count(root)
    }, team_id=team_id, user_id=user_id))
    return ok()


@routes.on("PUT", "/users/{user_id}/teams/{team_id}/threads/{thread_id}/following")
async def follow(call):
    return await _follow(call, True)


@routes.on("DELETE", "/users/{user_id}/teams/{team_id}/threads/{thread_id}/following")
async def unfollow(call):
    return await _follow(call, False)


@routes.on("PUT", "/users/{user_id}/teams/{team_id}/threads/{thread_id}/read/{timestamp}")
async def read_thread(call):
    user_id, team_id, root = _own_thread(call)
    membership = call.server.threads.membership(root["id"], user_id)
    if membership is None or not call.text("timestamp").isdigit():
        raise forbidden()
    before = call.server.threads.json(root, membership, user_id)
    call.store.update("thread_memberships", {"post_id": root["id"], "user_id": user_id}, {
        "last_viewed": int(call.text("timestamp")), "unread_mentions": 0})
    after = call.server.threads.json(root, call.server.threads.membership(root["id"], user_id), user_id)
    call.hub.publish(Event("thread_read_changed", {
        "channel_id": root["channel_id"], "previous_unread_mentions": before["unread_mentions"],
        "previous_unread_replies": before["unread_replies"], "thread_id": root["id"],
        "timestamp": after["last_viewed_at"], "unread_mentions": 0, "unread_replies": after["unread_replies"],
    }, team_id=team_id, user_id=user_id))
    return answer(after)
