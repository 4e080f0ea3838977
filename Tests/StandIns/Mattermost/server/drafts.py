"""Texts before they are posts: drafts, and posts that the server sends later by itself."""

import asyncio

from .errors import APIError, forbidden, invalid_body, invalid_url
from .hub import Event
from .posts import MESSAGE_MAXIMUM, post_fields
from .store import new_id
from .wire import Routes, answer, encode, ok, typed

routes = Routes()

# The server accepts times that have just passed.
PAST_ALLOWED = 5000
# Ours: how long the timer waits at most, in seconds; then it looks again.
TIMER_MAXIMUM = 3600


def draft_json(server, row):
    body = {
        "create_at": row["create_at"], "update_at": row["update_at"], "delete_at": 0, "user_id": row["user_id"],
        "channel_id": row["channel_id"], "root_id": row["root_id"], "message": row["message"], "type": "",
        "props": dict(sorted(row["props"].items())),
    }
    if row["file_ids"]:
        body["file_ids"] = row["file_ids"]
    metadata = {"files": server.files.infos(row["file_ids"])} if row["file_ids"] else {}
    return body | {"metadata": metadata}


def _check(fields):
    if len(fields["message"]) > MESSAGE_MAXIMUM:
        raise APIError(400, "model.draft.is_valid.message_length.app_error")


@routes.on("POST", "/drafts")
async def upsert_draft(call):
    """A draft for each channel and thread. An empty text deletes it, and the answer is null."""
    body = await call.body("draft")
    fields, channel_id = post_fields(body), typed(body, "channel_id", str, "", "draft")
    if not call.access.may_post(channel_id, call.user_id):
        raise forbidden()
    _check(fields)
    key = {"user_id": call.user_id, "channel_id": channel_id, "root_id": fields["root_id"]}
    if not fields["message"]:
        call.store.run(
            "DELETE FROM drafts WHERE user_id = ? AND channel_id = ? AND root_id = ?", *key.values())
        return answer(None, 201)
    now = call.store.now()
    known = _draft(call, channel_id, fields["root_id"])
    row = {
        "create_at": known["create_at"] if known else now, "update_at": now, **key, "message": fields["message"],
        "props": fields["props"], "file_ids": fields["file_ids"],
    }
    call.store.insert("drafts", row, or_replace=True)
    shown = draft_json(call.server, row)
    _publish_draft(call, "draft_created", shown)
    return answer(shown, 201)


def _draft(call, channel_id, root_id):
    return call.store.one(
        "SELECT * FROM drafts WHERE user_id = ? AND channel_id = ? AND root_id = ?", call.user_id, channel_id, root_id)


def _publish_draft(call, name, draft):
    """The connection that the request names has the draft already."""
    call.hub.publish(Event(
        name, {"draft": encode(draft)}, channel_id=draft["channel_id"], user_id=call.user_id,
        omit_connection=call.request.headers.get("Connection-Id", "")))


@routes.on("GET", "/users/{user_id}/teams/{team_id}/drafts")
async def list_drafts(call):
    """Always those of the caller."""
    team_id = call.id("team_id")
    call.access.require_team(call, team_id)
    rows = call.store.all(
        "SELECT d.* FROM drafts d JOIN channels c ON c.id = d.channel_id JOIN channel_members m"
        " ON m.channel_id = c.id AND m.user_id = d.user_id WHERE d.user_id = ? AND c.team_id IN (?, '')"
        " ORDER BY d.update_at DESC", call.user_id, team_id)
    return answer([draft_json(call.server, row) for row in rows])


async def _delete_draft(call, root_id):
    row = _draft(call, call.id("channel_id"), root_id)
    if row:
        call.store.run(
            "DELETE FROM drafts WHERE user_id = ? AND channel_id = ? AND root_id = ?", call.user_id,
            row["channel_id"], root_id)
        _publish_draft(call, "draft_deleted", draft_json(call.server, row))
    return ok()


@routes.on("DELETE", "/users/{user_id}/channels/{channel_id}/drafts")
async def delete_draft(call):
    return await _delete_draft(call, "")


@routes.on("DELETE", "/users/{user_id}/channels/{channel_id}/drafts/{thread_id}")
async def delete_draft_of_thread(call):
    return await _delete_draft(call, call.id("thread_id"))


# Scheduled posts

def scheduled_json(server, row):
    return draft_json(server, row) | {
        "id": row["id"], "scheduled_at": row["scheduled_at"], "processed_at": row["processed_at"],
        "error_code": row["error_code"],
    }


class ScheduledPosts:
    """Sends what is due. The server looks once a minute; this stand-in sends at the time itself."""

    def __init__(self, server):
        self.server = server
        self.store = server.store
        self.timer = None

    def set_timer(self):
        if self.timer:
            self.timer.cancel()
            self.timer = None
        due = self.store.value("SELECT MIN(scheduled_at) FROM scheduled_posts WHERE error_code = ''")
        if due is not None:
            wait = min(max(0, due - self.store.now()) / 1000, TIMER_MAXIMUM)
            self.timer = asyncio.get_running_loop().call_later(wait, self.send_due)

    def send_due(self):
        self.timer = None
        for row in self.store.all(
            "SELECT * FROM scheduled_posts WHERE error_code = '' AND scheduled_at <= ? ORDER BY scheduled_at",
            self.store.now(),
        ):
            self._send(row)
        self.set_timer()

    def _send(self, row):
        channel = self.store.one("SELECT * FROM channels WHERE id = ?", row["channel_id"])
        if channel is None or channel["delete_at"]:
            self._fail(row, "channel_archived" if channel else "channel_not_found")
        elif not self.server.access.may_post(channel["id"], row["user_id"]):
            self._fail(row, "no_channel_member")
        else:
            try:
                self.server.posts.create(
                    channel, self.server.access.user(row["user_id"]), row, set_online=False)
            except APIError:
                self._fail(row, "unable_to_send")
                return
            self.store.run("DELETE FROM scheduled_posts WHERE id = ?", row["id"])
            self.publish("scheduled_post_deleted", row)

    def _fail(self, row, code):
        self.store.update(
            "scheduled_posts", {"id": row["id"]}, {"error_code": code, "processed_at": self.store.now()})
        self.publish("scheduled_post_updated", row | {"error_code": code})

    def publish(self, name, row, omit_connection=""):
        self.server.hub.publish(Event(
            name, {"scheduledPost": encode(scheduled_json(self.server, row))}, user_id=row["user_id"],
            omit_connection=omit_connection))


async def _scheduled(call):
    body = await call.body("schedule_post")
    fields = post_fields(body)
    _check(fields)
    at = typed(body, "scheduled_at", int, 0, "schedule_post")
    if at - call.store.now() < -PAST_ALLOWED:
        raise APIError(400, "model.scheduled_post.is_valid.scheduled_at.app_error")
    if not (fields["message"] or fields["file_ids"]):
        raise invalid_body("schedule_post")
    channel_id = typed(body, "channel_id", str, "", "schedule_post")
    call.access.require_post(call, channel_id)
    call.access.channel(channel_id)
    return body, {name: fields[name] for name in ("message", "props", "file_ids", "root_id")}, channel_id, at


@routes.on("POST", "/posts/schedule")
async def create_scheduled(call):
    _, fields, channel_id, at = await _scheduled(call)
    now = call.store.now()
    row = {
        "id": new_id(), "create_at": now, "update_at": now, "user_id": call.user_id, "channel_id": channel_id,
        **fields, "scheduled_at": at, "processed_at": 0, "error_code": "",
    }
    call.store.insert("scheduled_posts", row)
    call.server.scheduled.publish("scheduled_post_created", row, call.request.headers.get("Connection-Id", ""))
    call.server.scheduled.set_timer()
    return answer(scheduled_json(call.server, row), 201)


def _own(call, action):
    row = call.store.one("SELECT * FROM scheduled_posts WHERE id = ?", call.id("scheduled_post_id"))
    if row is None:
        raise APIError(404, f"app.{action}_scheduled_post.existing_scheduled_post.not_exist")
    if row["user_id"] != call.user_id:
        raise APIError(403, f"app.{action}_scheduled_post.{action}_permission.error")
    return row


@routes.on("PUT", "/posts/schedule/{scheduled_post_id}")
async def update_scheduled(call):
    body, fields, _, at = await _scheduled(call)
    if body.get("id") != call.id("scheduled_post_id"):
        raise invalid_url("scheduled_post_id")
    row = _own(call, "update")
    changes = {name: fields[name] for name in ("message", "props", "file_ids")} | {
        "scheduled_at": at, "update_at": call.store.now(), "error_code": "", "processed_at": 0}
    call.store.update("scheduled_posts", {"id": row["id"]}, changes)
    row |= changes
    call.server.scheduled.publish("scheduled_post_updated", row, call.request.headers.get("Connection-Id", ""))
    call.server.scheduled.set_timer()
    return answer(scheduled_json(call.server, row), 201)


@routes.on("DELETE", "/posts/schedule/{scheduled_post_id}")
async def delete_scheduled(call):
    row = _own(call, "delete")
    call.store.run("DELETE FROM scheduled_posts WHERE id = ?", row["id"])
    call.server.scheduled.publish("scheduled_post_deleted", row, call.request.headers.get("Connection-Id", ""))
    call.server.scheduled.set_timer()
    return answer(scheduled_json(call.server, row))


@routes.on("GET", "/posts/scheduled/team/{team_id}")
async def list_scheduled(call):
    team_id = call.id("team_id")
    call.access.require_team(call, team_id)

    def of(team_id):
        return [scheduled_json(call.server, row) for row in call.store.all(
            "SELECT s.* FROM scheduled_posts s JOIN channels c ON c.id = s.channel_id WHERE s.user_id = ?"
            " AND c.team_id = ? ORDER BY s.scheduled_at, s.create_at", call.user_id, team_id)]

    body = {team_id: of(team_id)}
    if call.flag("includeDirectChannels"):
        body["directChannels"] = of("")
    return answer(dict(sorted(body.items())))
