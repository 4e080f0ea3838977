#!/usr/bin/env python3
"""Plays steps of three people against a Mattermost server and prints one JSON line for each: see player.py.

usage: steps.py A B [--canaries FILE]

A and B are addresses of one server, like http://127.0.0.1:8065. Anna and Ben use A, Carl and the operator use B, so
that A can be a gateway. The server has to be new: the operator creates the first account. Each text that a person
writes contains a word that occurs in no other text. The words go to FILE or, at the end, to standard error, one a line
with the writer and the kind of text.
"""

import argparse
import struct
import sys
import time
import zlib

sys.dont_write_bytecode = True

from player import PASSWORD, Canaries, Failed, Person, Play, RawSocket  # noqa: E402

MESSAGE_MAXIMUM = 16383
NOBODY = "y" * 26
FAR_AHEAD = 365 * 24 * 3600 * 1000


def png():
    """One red pixel."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress(b"\0\xff\0\0"))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + pixels + chunk(b"IEND", b"")


def file_id(answer):
    """The id of an uploaded file; an id that no file has if a gateway has refused the upload."""
    return answer["file_infos"][0]["id"] if answer and "file_infos" in answer else NOBODY


class Steps:
    def __init__(self, a, b):
        self.operator = Person("operator", b)
        self.anna, self.ben, self.carl = Person("anna", a), Person("ben", a), Person("carl", b)
        self.canaries = Canaries()
        self.play = Play([self.anna, self.ben, self.carl], self.canaries, [a, b])

    def run(self):
        self.accounts()
        self.logins()
        self.sockets()
        self.people()
        self.teams()
        self.channels()
        self.members()
        self.posts()
        self.edits()
        self.lists()
        self.threads()
        self.unread()
        self.searches()
        self.reactions()
        self.files()
        self.topics()
        self.settings()
        self.drafts()
        self.commands()
        self.raw_sockets()
        self.endings()

    # Before anybody is there

    def accounts(self):
        play, operator = self.play, self.operator
        play.request(operator, "the server answers", "GET", "/system/ping", headers={})
        play.request(operator, "settings before login", "GET", "/config/client?format=old", headers={})
        play.request(operator, "no such page", "GET", "/nothing", headers={})
        account = {"username": "operator", "email": "operator@example.org", "password": PASSWORD}
        play.request(operator, "first account", "POST", "/users", headers={}, json=account)
        account = {"username": "dora", "email": "dora@example.org", "password": PASSWORD}
        play.request(operator, "nobody signs up alone", "POST", "/users", headers={}, json=account)
        play.call(operator, "operator logs in", "login")
        for person in (self.anna, self.ben, self.carl):
            play.call(
                operator, f"account of {person.name}", "users.create_user",
                {"username": person.name, "email": f"{person.name}@example.org", "password": PASSWORD})
        play.call(
            operator, "name is taken", "users.create_user",
            {"username": "anna", "email": "other@example.org", "password": PASSWORD})
        self.team = play.call(
            operator, "team", "teams.create_team", {
                "name": "crew", "display_name": play.word(operator, "team name"), "type": "O",
                "description": play.write(operator, "team description"),
            })["id"]

    def logins(self):
        play, anna = self.play, self.anna
        play.request(
            anna, "wrong password", "POST", "/users/login", headers={},
            json={"login_id": "anna", "password": "wrong-horse-battery"})
        play.request(
            anna, "empty password", "POST", "/users/login", headers={}, json={"login_id": "anna", "password": ""})
        play.request(anna, "login is no JSON", "POST", "/users/login", headers={}, data=b"{")
        for person in (self.anna, self.ben, self.carl):
            play.call(person, f"{person.name} logs in", "login")
            play.call(
                self.operator, f"{person.name} joins the team", "teams.add_user_to_team", self.team,
                {"team_id": self.team, "user_id": person.id})
        play.request(anna, "no token", "GET", "/users/me", headers={})
        play.request(anna, "wrong token", "GET", "/users/me", headers={"Authorization": f"Bearer {NOBODY}"})
        play.request(anna, "token in the URL", "GET", f"/users/me?access_token={anna.driver.client.token}", headers={})
        browser = {"X-Requested-With": "XMLHttpRequest"}
        login = play.request(
            anna, "login of a browser", "POST", "/users/login", headers=browser,
            json={"login_id": "anna@example.org", "password": PASSWORD})
        cookies = dict(login.cookies)
        play.request(anna, "cookie reads", "GET", "/users/me", headers={}, cookies=cookies)
        typing = {"json": {"term": "ben"}, "cookies": cookies}
        play.request(anna, "cookie alone writes nothing", "POST", "/users/search", headers={}, **typing)
        play.request(
            anna, "cookie and CSRF token", "POST", "/users/search", headers={"X-CSRF-Token": cookies["MMCSRF"]},
            **typing)
        play.request(
            anna, "logout of the browser", "POST", "/users/logout", headers={"X-CSRF-Token": cookies["MMCSRF"]},
            cookies=cookies)
        play.request(anna, "cookie after logout", "GET", "/users/me", headers={}, cookies=cookies)
        token = play.call(
            self.operator, "token for programs", "users.create_user_access_token", anna.id,
            {"description": play.write(self.operator, "token description")})["token"]
        play.request(anna, "token of programs", "GET", "/users/me", headers={"Authorization": f"Bearer {token}"})
        play.call(anna, "no token for everybody", "users.create_user_access_token", anna.id, {"description": "mine"})

    def sockets(self):
        for person in (self.anna, self.ben, self.carl):
            person.listen()
            self.play.call(person, f"{person.name} listens", "users.get_user", "me")

    # Who is there

    def people(self):
        play, anna, ben = self.play, self.anna, self.ben
        play.call(anna, "users by id", "users.get_users_by_ids", [ben.id, anna.id])
        play.call(anna, "users by name", "users.get_users_by_usernames", ["ben", "carl", "nobody"])
        play.call(anna, "no ids", "users.get_users_by_ids", [])
        play.call(anna, "user by name", "users.get_user_by_username", "ben")
        play.call(anna, "user by address", "users.get_user_by_email", "carl@example.org")
        play.call(anna, "no such user", "users.get_user", NOBODY)
        play.call(anna, "id is none", "users.get_user", "short")
        play.call(anna, "search of users", "users.search_users", {"term": "be", "team_id": self.team})
        play.call(anna, "completion of users", "users.autocomplete_users", {"name": "c", "in_team": self.team})
        play.call(anna, "users by page", "users.get_users", {"in_team": self.team, "page": 1, "per_page": 2})
        play.call(anna, "own sessions", "users.get_user_sessions", "me")
        play.call(anna, "others' sessions", "users.get_user_sessions", ben.id)
        play.call(anna, "profile", "users.patch_user", anna.id, {
            "nickname": play.word(anna, "nickname"), "position": play.write(anna, "position"),
            "first_name": play.word(anna, "first name"),
        })
        play.call(anna, "others' profile", "users.patch_user", ben.id, {"nickname": "b"})
        play.request(anna, "custom status", "PUT", "/users/me/status/custom", json={
            "emoji": "coffee", "text": play.write(anna, "custom status")})
        play.request(anna, "no custom status", "DELETE", "/users/me/status/custom")
        play.call(anna, "status away", "status.update_user_status", anna.id, {"user_id": anna.id, "status": "away"})
        play.call(ben, "status of a user", "status.get_user_status", anna.id)
        play.call(anna, "status online", "status.update_user_status", anna.id, {"user_id": anna.id, "status": "online"})
        play.call(ben, "statuses", "status.get_user_statuses_by_id", [anna.id, self.operator.id])

    def teams(self):
        play, anna = self.play, self.anna
        play.call(anna, "own teams", "teams.get_user_teams", "me")
        play.call(anna, "team by id", "teams.get_team", self.team)
        play.call(anna, "team by name", "teams.get_team_by_name", "crew")
        play.call(anna, "team exists", "teams.check_team_exists", "crew")
        play.call(anna, "no such team", "teams.get_team", NOBODY)
        play.call(anna, "members of the team", "teams.get_team_members", self.team, {"per_page": 2, "page": 0})
        play.call(anna, "member of the team", "teams.get_team_member", self.team, self.ben.id)
        play.call(anna, "size of the team", "teams.get_team_stats", self.team)
        play.call(anna, "own memberships", "teams.get_team_members_for_user", "me")
        play.call(anna, "team is not anna's", "teams.patch_team", self.team, {"description": "mine"})
        play.call(
            self.operator, "new description", "teams.patch_team", self.team,
            {"description": play.write(self.operator, "new team description")})

    # Where they talk

    def channels(self):
        play, anna, carl = self.play, self.anna, self.carl
        self.open = play.call(anna, "open channel", "channels.create_channel", {
            "team_id": self.team, "type": "O", "name": "harbour", "display_name": play.word(anna, "channel name"),
            "header": play.write(anna, "first header"), "purpose": play.write(anna, "first purpose"),
        })["id"]
        self.private = play.call(anna, "private channel", "channels.create_channel", {
            "team_id": self.team, "type": "P", "name": "cabin", "display_name": play.word(anna, "private name")})["id"]
        play.call(anna, "name of a channel is taken", "channels.create_channel", {
            "team_id": self.team, "type": "O", "name": "harbour", "display_name": "Harbour"})
        play.call(anna, "channel without a name", "channels.create_channel", {
            "team_id": self.team, "type": "O", "name": "nameless", "display_name": ""})
        self.direct = play.call(
            anna, "direct channel", "channels.create_direct_message_channel", [anna.id, self.ben.id])["id"]
        again = play.call(
            self.ben, "the same direct channel", "channels.create_direct_message_channel", [self.ben.id, anna.id])
        if again["id"] != self.direct:
            raise Failed("two users have two direct channels")
        self.own = play.call(
            anna, "channel with oneself", "channels.create_direct_message_channel", [anna.id, anna.id])["id"]
        self.outside = play.call(
            anna, "direct channel with carl", "channels.create_direct_message_channel", [anna.id, carl.id])["id"]
        self.group = play.call(
            anna, "group channel", "channels.create_group_message_channel", [anna.id, self.ben.id, carl.id])["id"]
        play.call(anna, "group of two", "channels.create_group_message_channel", [anna.id, self.ben.id])
        play.call(anna, "direct channel with nobody", "channels.create_direct_message_channel", [anna.id, NOBODY])
        play.call(anna, "channel by id", "channels.get_channel", self.open)
        play.call(anna, "channel by name", "channels.get_channel_by_name", self.team, "cabin")
        play.call(anna, "channel by names", "channels.get_channel_by_name_and_team_name", "crew", "harbour")
        play.call(anna, "no such channel", "channels.get_channel", NOBODY)
        play.call(anna, "open channels", "channels.get_public_channels", self.team, {"per_page": 2})
        play.call(anna, "channels by id", "channels.get_list_of_channels_by_ids", self.team, [self.open, self.private])
        play.call(anna, "search of channels", "channels.search_channels", self.team, {"term": "harb"})
        play.call(anna, "completion of channels", "channels.autocomplete_channels", self.team, {"name": "cab"})
        play.call(anna, "own channels", "channels.get_channels_for_user", anna.id, self.team)
        play.call(carl, "private is private", "channels.get_channel", self.private)
        play.call(carl, "private has no name", "channels.get_channel_by_name", self.team, "cabin")
        play.call(carl, "open is open", "channels.get_channel", self.open)

    def members(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        play.call(anna, "ben into the open channel", "channels.add_user", self.open, {"user_id": ben.id})
        play.call(anna, "ben into the private channel", "channels.add_user", self.private, {"user_id": ben.id})
        play.call(anna, "ben is there already", "channels.add_user", self.open, {"user_id": ben.id})
        play.call(
            carl, "carl adds nobody to the private channel", "channels.add_user", self.private, {"user_id": carl.id})
        play.call(anna, "nobody into a direct channel", "channels.add_user", self.direct, {"user_id": carl.id})
        play.call(anna, "members, first page", "channels.get_channel_members", self.open, {"page": 0, "per_page": 1})
        play.call(anna, "members, second page", "channels.get_channel_members", self.open, {"page": 1, "per_page": 1})
        play.call(anna, "members, more than a page has", "channels.get_channel_members", self.open, {"per_page": 500})
        play.call(anna, "members by id", "channels.get_channel_members_by_ids", self.open, [ben.id])
        play.call(anna, "member", "channels.get_channel_member", self.open, ben.id)
        play.call(anna, "no member", "channels.get_channel_member", self.private, carl.id)
        play.call(carl, "members are private", "channels.get_channel_members", self.private)
        play.call(anna, "size of a channel", "channels.get_channel_statistics", self.open)
        play.call(anna, "own memberships of channels", "channels.get_channel_members_for_user", anna.id, self.team)

    # Messages

    def post(self, person, step, channel, kind, **fields):
        message = fields.pop("message", None) or self.play.write(person, kind)
        post = self.play.call(
            person, step, "posts.create_post", {"channel_id": channel, "message": message, **fields})
        return post or {"id": NOBODY}

    def posts(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        self.first = self.post(anna, "message", self.open, "message")["id"]
        pending = {"pending_post_id": f"{anna.id}:1700000000001"}
        text = play.write(anna, "pending message")
        for step in ("message with a pending id", "the same pending id again"):
            self.post(anna, step, self.open, "", message=text, **pending)
        self.in_private = self.post(anna, "private message", self.private, "private message")["id"]
        self.in_direct = self.post(ben, "direct message", self.direct, "direct message")["id"]
        self.post(anna, "note to oneself", self.own, "note")
        self.post(carl, "direct message of carl", self.outside, "direct message of carl")
        self.post(carl, "group message", self.group, "group message")
        self.reply = self.post(ben, "reply", self.open, "reply", root_id=self.first)["id"]
        self.post(anna, "reply of the author", self.open, "second reply", root_id=self.first)
        self.post(ben, "reply to a reply", self.open, "reply to a reply", root_id=self.reply)
        self.post(ben, "reply elsewhere", self.private, "reply elsewhere", root_id=self.first)
        self.post(anna, "mention", self.open, "", message=f"@ben {play.write(anna, 'mention')}")
        self.post(anna, "mention of all", self.open, "", message=f"@channel {play.write(anna, 'mention of all')}")
        self.tagged = self.post(
            anna, "hashtag", self.open, "", message=f"#{play.word(anna, 'hashtag')} {play.write(anna, 'tagged')}")["id"]
        self.post(
            anna, "mention of a channel", self.open, "", message=f"~town-square {play.write(anna, 'channel mention')}")
        self.post(
            anna, "letters and signs", self.open, "",
            message=f"<b>&amp;</b> \"ä ö ü\" 漢字 🎉\u2028 \\ {play.write(anna, 'signs')}\nsecond line\t:tada:")
        self.post(
            anna, "link", self.open, "",
            message=f"https://example.org/{play.word(anna, 'link')} {play.write(anna, 'linked')}")
        permalink = f"http://chat.example/crew/pl/{self.in_private}"
        self.post(anna, "link to a post", self.open, "", message=f"{permalink} {play.write(anna, 'permalink')}")
        self.long = self.post(
            anna, "longest message", self.open, "",
            message=f"{play.write(anna, 'longest message')} ".ljust(MESSAGE_MAXIMUM, "ä"))["id"]
        play.request(anna, "too long a message", "POST", "/posts", json={
            "channel_id": self.open, "message": "x" * (MESSAGE_MAXIMUM + 1)})
        self.attached = self.post(anna, "attachment", self.open, "attached", props={
            "attachments": [{
                "fallback": play.write(anna, "fallback"), "pretext": play.write(anna, "pretext"),
                "text": play.write(anna, "attachment"), "title": play.write(anna, "title"),
                "author_name": play.word(anna, "author"), "footer": play.write(anna, "footer"),
                "fields": [{"short": True, "title": play.word(anna, "field"), "value": play.write(anna, "value")}],
            }],
            "note": play.write(anna, "prop"),
        })["id"]
        self.post(anna, "message of a custom type", self.open, "custom type", type="custom_note")
        self.post(anna, "no system messages from people", self.open, "system type", type="system_generic")
        play.request(anna, "message is no JSON", "POST", "/posts", data=b"{\"channel_id\":")
        self.post(anna, "message to nowhere", NOBODY, "message to nowhere")
        self.post(carl, "carl writes nothing in private", self.private, "refused message")
        self.post(carl, "carl is not in the open channel", self.open, "message of a stranger")
        play.call(carl, "carl joins", "channels.add_user", self.open, {"user_id": carl.id})
        self.outsiders = self.post(carl, "message of carl", self.open, "message of carl")["id"]
        play.request(
            self.operator, "message for one alone", "POST", "/posts/ephemeral", json={
                "user_id": ben.id,
                "post": {"channel_id": self.open, "message": play.write(self.operator, "ephemeral")},
            })
        play.call(anna, "only operators write to one alone", "posts.create_ephemeral_post", {
            "user_id": ben.id, "post": {"channel_id": self.open, "message": "hidden"}})

    def edits(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        play.call(ben, "post", "posts.get_post", self.first)
        play.call(carl, "private post", "posts.get_post", self.in_private)
        play.request(carl, "private post, in full", "GET", f"/posts/{self.in_private}")
        play.call(ben, "no such post", "posts.get_post", NOBODY)
        play.request(ben, "posts by id", "POST", "/posts/ids", json=[self.first, self.in_private, NOBODY])
        play.call(anna, "patch", "posts.patch_post", self.first, {"message": play.write(anna, "patched")})
        play.call(
            anna, "update", "posts.update_post", self.first, {"id": self.first, "message": play.write(anna, "updated")})
        play.call(anna, "update of another id", "posts.update_post", self.first, {"id": self.reply, "message": "x"})
        play.call(
            anna, "patch of props", "posts.patch_post", self.first,
            {"props": {"note": play.write(anna, "patched prop")}})
        play.call(
            ben, "others' posts stay", "posts.patch_post", self.first, {"message": play.write(ben, "refused patch")})
        play.call(
            anna, "patch of nothing", "posts.patch_post", NOBODY, {"message": play.write(anna, "patch of nothing")})
        play.call(
            ben, "direct message changes", "posts.patch_post", self.in_direct,
            {"message": play.write(ben, "patched direct")})
        play.request(
            anna, "too long a patch", "PUT", f"/posts/{self.first}/patch",
            json={"message": "x" * (MESSAGE_MAXIMUM + 1)})
        history = play.request(anna, "history", "GET", f"/posts/{self.first}/edit_history").json()
        play.request(ben, "history is the author's", "GET", f"/posts/{self.first}/edit_history")
        version = history[-1]["id"] if isinstance(history, list) else NOBODY
        play.request(anna, "old version comes back", "POST", f"/posts/{self.first}/restore/{version}")
        play.call(ben, "pin", "posts.pin_post_to_channel", self.first)
        play.call(anna, "pinned posts", "channels.get_channel_pinned_posts", self.open)
        play.call(ben, "no pin", "posts.unpin_post_to_channel", self.first)
        doomed = self.post(anna, "message that goes", self.open, "doomed")["id"]
        self.post(ben, "reply that goes with it", self.open, "doomed reply", root_id=doomed)
        play.call(ben, "others' posts are not deleted", "posts.delete_post", doomed)
        play.call(anna, "delete", "posts.delete_post", doomed)
        play.call(anna, "deleted post", "posts.get_post", doomed)
        play.call(anna, "delete again", "posts.delete_post", doomed)
        play.call(self.operator, "operator deletes", "posts.delete_post", self.outsiders)

    def lists(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        by_page = "posts.get_posts_for_channel"
        newest = play.call(ben, "posts, first page", by_page, self.open, {"page": 0, "per_page": 3})["order"]
        play.call(ben, "posts, second page", by_page, self.open, {"page": 1, "per_page": 3})
        play.call(ben, "posts before", by_page, self.open, {"before": newest[2], "per_page": 2})
        play.call(ben, "posts after", by_page, self.open, {"after": newest[2], "per_page": 5})
        play.call(ben, "posts before nothing", by_page, self.open, {"before": "short"})
        play.call(ben, "posts without threads", by_page, self.open, {"per_page": 4, "skipFetchThreads": "true"})
        play.call(ben, "roots alone", by_page, self.open, {"per_page": 4, "collapsedThreads": "true"})
        play.call(ben, "all posts", by_page, self.open, {"per_page": 200})
        since = play.request(ben, "time of a post", "GET", f"/posts/{self.tagged}").json()["create_at"]
        play.call(ben, "posts since", by_page, self.open, {"since": since - 1})
        play.call(ben, "direct messages", by_page, self.direct)
        play.call(carl, "group messages", by_page, self.group)
        play.call(carl, "private posts", by_page, self.private)
        play.call(anna, "deleted posts are the operator's", by_page, self.open, {"include_deleted": "true"})

    def threads(self):
        play, anna, ben = self.play, self.anna, self.ben
        threads = f"/users/me/teams/{self.team}/threads"
        play.call(anna, "thread", "posts.get_thread", self.first)
        play.call(anna, "thread from a reply", "posts.get_thread", self.reply)
        play.request(anna, "thread by page", "GET", f"/posts/{self.first}/thread?perPage=1&direction=down")
        play.call(self.carl, "private thread", "posts.get_thread", self.in_private)
        play.request(anna, "own threads", "GET", f"{threads}?extended=true")
        play.request(anna, "own thread", "GET", f"{threads}/{self.first}")
        play.request(ben, "thread is read", "PUT", f"{threads}/{self.first}/read/1900000000000")
        play.request(ben, "thread is left", "DELETE", f"{threads}/{self.first}/following")
        self.post(anna, "reply that ben misses", self.open, "missed reply", root_id=self.first)
        play.request(ben, "thread is followed", "PUT", f"{threads}/{self.first}/following")

    def unread(self):
        play, anna, ben = self.play, self.anna, self.ben
        play.call(ben, "unread", "channels.get_unread_messages", ben.id, self.open)
        play.call(ben, "unread in the team", "teams.get_unreads_for_team", ben.id, self.team)
        play.call(ben, "unread in all teams", "teams.get_team_unreads_for_user", ben.id)
        play.call(ben, "channel is viewed", "channels.view_channel", ben.id, {"channel_id": self.open})
        play.call(ben, "nothing is unread", "channels.get_unread_messages", ben.id, self.open)
        self.post(anna, "unread message", self.open, "unread message")
        play.call(
            ben, "posts around the unread", "posts.get_unread_posts_for_channel", ben.id, self.open,
            {"limit_before": 2, "limit_after": 2})
        play.request(ben, "unread from a post on", "POST", f"/users/me/posts/{self.tagged}/set_unread", json={})
        play.call(ben, "unread again", "channels.get_unread_messages", ben.id, self.open)
        play.request(ben, "channels are read", "POST", "/channels/members/me/mark_read", json=[self.open, self.direct])
        play.call(ben, "others' unread", "channels.get_unread_messages", anna.id, self.open)

    def searches(self):
        play, anna, carl = self.play, self.anna, self.carl
        words = {kind: word for word, _, kind in self.canaries.words}

        def search(person, step, terms, **fields):
            play.call(
                person, step, "posts.search_for_team_posts", self.team,
                {"terms": terms, "is_or_search": False, **fields})

        search(anna, "search", words["private message"])
        search(carl, "search finds nothing private", words["private message"])
        search(anna, "search of two words", f"{words['pending message']} says")
        search(
            anna, "search of one or the other", f"{words['pending message']} {words['private message']}",
            is_or_search=True)
        search(anna, "search of a phrase", f"\"{words['patched direct']} says ben\"")
        search(anna, "search by author", "from:carl says")
        search(anna, "search by channel", "in:cabin says")
        search(anna, "search without a word", f"in:cabin says -{words['private message']}")
        search(anna, "search of a hashtag", f"#{words['hashtag']}")
        search(anna, "search of a beginning", f"{words['tagged'][:-2]}*")
        search(anna, "search of what is deleted", words["doomed"])
        search(anna, "search of what was before", words["message"])
        search(anna, "search of what nobody wrote", play.word(anna, "search"))
        search(anna, "search of nothing", "")
        play.request(anna, "search everywhere", "POST", "/posts/search", json={
            "terms": words["direct message of carl"], "is_or_search": False})

    def reactions(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl

        def react(person, step, name, post=self.first, by=None):
            play.call(person, step, "reactions.create_reaction", {
                "user_id": (by or person).id, "post_id": post, "emoji_name": name})

        react(ben, "reaction", "tada")
        react(anna, "reaction of the author", "+1")
        react(ben, "no such emoji", "nosuchemoji")
        react(ben, "reaction for another", "tada", by=anna)
        react(carl, "reaction in private", "tada", post=self.in_private)
        self.emoji = play.word(anna, "emoji")
        emoji = play.call(
            anna, "custom emoji", "emoji.create_custom_emoji", self.emoji, {"image": ("e.png", png())})["id"]
        react(ben, "reaction with a custom emoji", self.emoji)
        self.post(
            ben, "custom emoji in a text", self.open, "",
            message=f":{self.emoji}: {play.write(ben, 'text with emoji')}")
        play.call(anna, "reactions", "reactions.get_reactions_of_post", self.first)
        play.request(anna, "reactions of posts", "POST", "/posts/ids/reactions", json=[self.first, self.reply])
        play.call(anna, "post with reactions", "posts.get_post", self.first)
        play.call(ben, "no reaction", "reactions.delete_reaction", ben.id, self.first, "tada")
        play.call(ben, "others' reactions stay", "reactions.delete_reaction", anna.id, self.first, "+1")
        play.call(anna, "emoji by name", "emoji.get_custom_emoji_by_name", self.emoji)
        play.call(anna, "search of emoji", "emoji.search_custom_emoji", {"term": self.emoji[:8]})
        play.call(anna, "image of an emoji", "emoji.get_custom_emoji_image", emoji)

    def files(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        name, content = play.word(anna, "file name"), play.write(anna, "file content")
        text = file_id(play.call(anna, "file", "files.upload_file", self.private, {
            "files": (f"{name}.txt", content.encode())}))
        picture = file_id(play.call(anna, "picture", "files.upload_file", self.private, {
            "files": (f"{play.word(anna, 'picture name')}.png", png())}))
        plain = file_id(play.request(
            anna, "file without a form", "POST",
            f"/files?channel_id={self.private}&filename={play.word(anna, 'plain name')}.txt",
            data=play.write(anna, "plain content").encode()).json())
        play.request(anna, "two files in one form", "POST", "/files", files=[
            ("files", (f"{play.word(anna, 'third name')}.txt", play.write(anna, "third content").encode())),
            ("files", (f"{play.word(anna, 'fourth name')}.bin", play.write(anna, "fourth content").encode())),
            ("channel_id", (None, self.private)), ("client_ids", (None, "one")), ("client_ids", (None, "two")),
        ])
        play.call(carl, "upload to a private channel", "files.upload_file", self.private, {
            "files": (f"{play.word(carl, 'refused name')}.txt", b"x")})
        play.call(ben, "file before it is posted", "files.get_file_metadata", text)
        post = self.post(
            anna, "message with files", self.private, "message with files", file_ids=[text, picture, plain])
        play.call(ben, "download", "files.get_file", text)
        play.call(ben, "download of a picture", "files.get_file", picture)
        play.call(ben, "thumbnail", "files.get_file_thumbnail", picture)
        play.call(ben, "preview", "files.get_file_preview", picture)
        play.call(ben, "no thumbnail of a text", "files.get_file_thumbnail", text)
        play.call(ben, "no preview of a text", "files.get_file_preview", text)
        play.call(ben, "about a file", "files.get_file_metadata", text)
        play.call(ben, "public link", "files.get_public_file_link", text)
        play.call(ben, "files of a post", "posts.get_file_info_for_post", post["id"])
        play.call(carl, "private file", "files.get_file", text)
        play.call(ben, "no such file", "files.get_file", NOBODY)
        play.request(ben, "search of files", "POST", f"/teams/{self.team}/files/search", json={
            "terms": name, "is_or_search": False})
        play.call(anna, "file goes from a post", "posts.patch_post", post["id"], {"file_ids": [text, picture]})
        play.call(ben, "file that is gone", "files.get_file", plain)

    def topics(self):
        play, anna, ben = self.play, self.anna, self.ben
        play.call(anna, "header", "channels.patch_channel", self.open, {"header": play.write(anna, "header")})
        play.call(ben, "purpose", "channels.patch_channel", self.open, {"purpose": play.write(ben, "purpose")})
        play.call(
            anna, "display name", "channels.patch_channel", self.open,
            {"display_name": play.word(anna, "display name")})
        play.call(anna, "header and purpose at once", "channels.patch_channel", self.private, {
            "header": play.write(anna, "private header"), "purpose": play.write(anna, "private purpose")})
        play.call(anna, "header goes", "channels.patch_channel", self.private, {"header": ""})
        play.call(
            ben, "header of a direct channel", "channels.patch_channel", self.direct,
            {"header": play.write(ben, "direct header")})
        play.call(
            ben, "direct channels have no purpose", "channels.patch_channel", self.direct,
            {"purpose": play.write(ben, "refused purpose")})
        play.call(anna, "too long a header", "channels.patch_channel", self.open, {"header": "x" * 1025})
        play.call(anna, "patch of a channel changes nothing", "channels.patch_channel", self.open, {})
        play.call(
            self.carl, "header of a private channel", "channels.patch_channel", self.private,
            {"header": play.write(self.carl, "refused header")})
        play.call(anna, "update of a channel", "channels.update_channel", self.open, {
            "id": self.open, "display_name": play.word(anna, "updated name"),
            "header": play.write(anna, "updated header"),
        })

        play.request(
            anna, "anna opens no private channel", "PUT", f"/channels/{self.private}/privacy", json={"privacy": "O"})
        play.request(
            self.operator, "private channel becomes open", "PUT", f"/channels/{self.private}/privacy",
            json={"privacy": "O"})
        play.call(self.carl, "what was private", "posts.get_posts_for_channel", self.private, {"per_page": 1})
        play.request(
            self.operator, "channel becomes private", "PUT", f"/channels/{self.private}/privacy", json={"privacy": "P"})

    def settings(self):
        play, anna, ben = self.play, self.anna, self.ben

        def entry(category, name, value, person=anna):
            return {"user_id": person.id, "category": category, "name": name, "value": value}

        theme = entry("theme", self.team, play.write(anna, "preference"))
        play.call(anna, "preference", "preferences.save_user_preferences", anna.id, [theme])
        play.call(
            anna, "others' preference", "preferences.save_user_preferences", anna.id, [entry("theme", "x", "y", ben)])
        play.call(anna, "preferences", "preferences.get_user_preferences", anna.id)
        play.call(anna, "preferences of a kind", "preferences.list_user_preferences_by_category", anna.id, "theme")
        play.call(anna, "one preference", "preferences.get_specific_user_preference", anna.id, "theme", self.team)
        play.call(anna, "no such preference", "preferences.get_specific_user_preference", anna.id, "theme", "none")
        play.call(anna, "preference goes", "preferences.delete_user_preferences", anna.id, [theme])
        flag = entry("flagged_post", self.in_private, "true")
        play.call(anna, "post is saved", "preferences.save_user_preferences", anna.id, [flag])
        play.call(anna, "saved posts", "posts.get_list_of_flagged_posts", anna.id)
        play.call(
            anna, "saved posts of a channel", "posts.get_list_of_flagged_posts", anna.id, {"channel_id": self.open})
        play.call(anna, "post is no longer saved", "preferences.delete_user_preferences", anna.id, [flag])
        play.call(ben, "notifications of a channel", "channels.update_channel_notifications", self.open, ben.id, {
            "mark_unread": "mention", "desktop": "all"})
        key = play.word(ben, "mention key")
        play.call(ben, "own word that notifies", "users.patch_user", ben.id, {"notify_props": {"mention_keys": key}})
        self.post(anna, "message with that word", self.open, "", message=f"{key} {play.write(anna, 'key mention')}")
        categories = f"/users/{anna.id}/teams/{self.team}/channels/categories"
        play.request(anna, "categories", "GET", categories)
        category = play.request(anna, "own category", "POST", categories, json={
            "user_id": anna.id, "team_id": self.team, "type": "custom", "display_name": play.word(anna, "category"),
            "channel_ids": [self.open]}).json()
        play.request(anna, "new name of a category", "PUT", f"{categories}/{category['id']}", json=category | {
            "display_name": play.word(anna, "renamed category")})
        play.request(anna, "category goes", "DELETE", f"{categories}/{category['id']}")

    def drafts(self):
        play, anna = self.play, self.anna
        play.request(
            anna, "draft", "POST", "/drafts", json={"channel_id": self.open, "message": play.write(anna, "draft")})
        play.request(anna, "draft of a reply", "POST", "/drafts", json={
            "channel_id": self.open, "root_id": self.first, "message": play.write(anna, "draft of a reply")})
        play.request(anna, "new text of a draft", "POST", "/drafts", json={
            "channel_id": self.open, "message": play.write(
                anna, "new draft"), "props": {"note": play.write(anna, "draft prop")}})
        play.request(anna, "drafts", "GET", f"/users/me/teams/{self.team}/drafts")
        play.request(anna, "draft goes", "DELETE", f"/users/me/channels/{self.open}/drafts")
        play.request(anna, "draft of a reply goes", "DELETE", f"/users/me/channels/{self.open}/drafts/{self.first}")
        play.request(self.carl, "draft in private", "POST", "/drafts", json={
            "channel_id": self.private, "message": play.write(self.carl, "refused draft")})
        now = time.time_ns() // 1_000_000
        post = play.request(anna, "post for later", "POST", "/posts/schedule", json={
            "channel_id": self.open, "message": play.write(anna, "scheduled"), "scheduled_at": now + FAR_AHEAD}).json()
        play.request(anna, "new text of a post for later", "PUT", f"/posts/schedule/{post['id']}", json=post | {
            "message": play.write(anna, "rescheduled")})
        play.request(anna, "posts for later", "GET", f"/posts/scheduled/team/{self.team}?includeDirectChannels=true")
        play.request(anna, "post for later goes", "DELETE", f"/posts/schedule/{post['id']}")
        play.request(anna, "post for long ago", "POST", "/posts/schedule", json={
            "channel_id": self.open, "message": play.write(anna, "refused schedule"), "scheduled_at": 1})
        socket = RawSocket(self.ben, self.ben.headers)
        text = play.write(anna, "sent later")
        answer = anna.request("POST", "/posts/schedule", json={
            "channel_id": self.open, "message": text, "scheduled_at": now})
        socket.until_posted(text.split()[0])
        socket.close()
        play.line(anna, "post is sent by the server", "POST /posts/schedule", {"status": answer.status_code})

    def commands(self):
        play, anna, ben = self.play, self.anna, self.ben

        def run(person, step, command, **fields):
            play.call(person, step, "commands.execute_command", {"channel_id": self.open, "command": command, **fields})

        run(anna, "/me", f"/me {play.write(anna, 'me')}")
        run(anna, "/shrug", f"/shrug {play.write(anna, 'shrug')}")
        run(anna, "/echo", f"/echo {play.write(anna, 'echo')}")
        run(anna, "/echo in a thread", f"/echo {play.write(anna, 'echo in a thread')}", root_id=self.first)
        run(anna, "/code", f"/code {play.write(anna, 'code')}")
        run(anna, "/msg", f"/msg @ben {play.write(anna, 'msg')}")
        run(anna, "/msg to nobody", f"/msg @nobody {play.write(anna, 'msg to nobody')}")
        run(anna, "/header", f"/header {play.write(anna, 'header by command')}")
        run(anna, "/purpose", f"/purpose {play.write(anna, 'purpose by command')}")
        run(anna, "/rename", f"/rename {play.word(anna, 'rename')}")
        run(anna, "/echo without a text", "/echo")
        run(ben, "/away", "/away")
        run(ben, "/online", "/online")
        play.request(anna, "no such command", "POST", "/commands/execute", json={
            "channel_id": self.open, "command": f"/{play.word(anna, 'command')} {play.write(anna, 'command text')}"})
        run(anna, "no command", play.write(anna, "no command"))
        run(self.carl, "/me in private", f"/me {play.write(self.carl, 'refused me')}", channel_id=self.private)
        play.request(
            anna, "completion of commands", "GET", f"/teams/{self.team}/commands/autocomplete_suggestions", params={
            "user_input": f"/he {play.word(anna, 'completion')}", "channel_id": self.open})
        play.call(anna, "commands", "commands.list_commands_for_team", {"team_id": self.team})
        play.request(ben, "typing", "POST", "/users/me/typing", json={"channel_id": self.open})
        play.request(
            ben, "typing in a thread", "POST", "/users/me/typing",
            json={"channel_id": self.open, "parent_id": self.first})
        play.request(self.carl, "typing in private", "POST", "/users/me/typing", json={"channel_id": self.private})

    def raw_sockets(self):
        """What the library's client cannot do: requests, other ways to log in, coming back."""
        play, anna, ben = self.play, self.anna, self.ben
        token = anna.driver.client.token

        def shown(step, came):
            """The numbers of events are left out: those of marks stand between them."""
            play.line(anna, step, "websocket", [
                {name: entry for name, entry in one.items() if name != "seq"} if one else "closed" for one in came])

        socket = RawSocket(anna)
        socket.send({"seq": 1, "action": "ping"})
        came = socket.reply({"seq": 2, "action": "authentication_challenge", "data": {"token": token}})
        shown("request before login, then login", came)
        for step, request in (
            ("ping", {"action": "ping"}),
            ("typing over the socket", {"action": "user_typing", "data": {"channel_id": self.open, "parent_id": ""}}),
            ("typing nowhere", {"action": "user_typing", "data": {"channel_id": NOBODY}}),
            (
                "statuses over the socket",
                {"action": "get_statuses_by_ids", "data": {"user_ids": [ben.id, self.operator.id]}}),
            ("statuses of nobody", {"action": "get_statuses_by_ids", "data": {}}),
            ("presence", {"action": "presence", "data": {"channel_id": self.open}}),
            ("no such action", {"action": "nothing"}),
            ("no action", {}),
        ):
            shown(step, socket.reply(request | {"seq": 9}))
        socket.close()
        socket = RawSocket(anna, {"Authorization": f"Bearer {token}"})
        shown("login by header", [socket.receive()])
        socket.close()
        socket = RawSocket(anna, {"Cookie": f"MMAUTHTOKEN={token}"})
        hello = socket.receive()
        shown("login by cookie", [hello])
        socket.close()
        missed = self.post(ben, "message that the socket misses", self.open, "missed by the socket")
        connection = hello["data"]["connection_id"]
        socket = RawSocket(
            anna, {"Cookie": f"MMAUTHTOKEN={token}"}, f"?connection_id={connection}&sequence_number={hello['seq'] + 1}")
        event = socket.until_posted(missed["id"])
        shown("connection is taken up", [event])
        socket.close()
        socket = RawSocket(anna, {"Cookie": f"MMAUTHTOKEN={token}"}, f"?connection_id={NOBODY}&sequence_number=7")
        shown("connection that nobody had", [socket.receive()])
        socket.close()
        socket = RawSocket(anna)
        socket.send({"seq": 1, "action": "authentication_challenge", "data": {"token": NOBODY}})
        shown("login with a wrong token", [socket.receive()])
        socket = RawSocket(anna, {"Authorization": f"Bearer {token}"})
        first = socket.receive()
        socket.send("no JSON")
        shown("no JSON", [first, socket.receive()])

    def endings(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        play.call(anna, "ben is removed", "channels.remove_channel_member", self.private, ben.id)
        play.call(ben, "private after the removal", "posts.get_posts_for_channel", self.private)
        play.call(carl, "carl leaves", "channels.remove_channel_member", self.open, carl.id)
        square = play.call(anna, "default channel", "channels.get_channel_by_name", self.team, "town-square")["id"]
        play.call(carl, "nobody leaves the default channel", "channels.remove_channel_member", square, carl.id)
        play.call(anna, "channel is archived", "channels.delete_channel", self.open)
        self.post(anna, "message to an archived channel", self.open, "message to an archive")
        play.call(anna, "archived channels", "channels.get_deleted_channels", self.team)
        play.call(self.operator, "channel comes back", "channels.restore_channel", self.open)
        self.post(anna, "last message", self.open, "last message")
        play.call(self.operator, "carl leaves the team", "teams.remove_user_from_team", self.team, carl.id)
        play.call(carl, "team without carl", "teams.get_team_members", self.team)
        for person in (anna, ben, carl):
            person.is_connected = False
            person.driver.disconnect()
            play.call(person, f"{person.name} logs out", "logout")
        play.request(anna, "after the logout", "GET", "/users/me")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("a", help="the address of anna and ben")
    parser.add_argument("b", help="the address of carl and of the operator")
    parser.add_argument("--canaries", help="the file for the words; otherwise standard error")
    arguments = parser.parse_args()
    steps = Steps(arguments.a.rstrip("/"), arguments.b.rstrip("/"))
    try:
        steps.run()
    except Failed as error:
        sys.exit(f"steps.py: {error}")
    finally:
        steps.canaries.write(arguments.canaries)


if __name__ == "__main__":
    main()
