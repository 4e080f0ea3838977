#!/usr/bin/env python3
"""Plays steps of three people against a Matrix server and prints one JSON line for each: see player.py.

usage: steps.py A B [--canaries FILE]

A and B are addresses of one server, like http://127.0.0.1:8008. Anna and Ben use A, Carl uses B, so that A can be a
gateway. The server has to be new. Each text that a person writes contains a word that occurs in no other text. The words
go to FILE or, at the end, to standard error, one a line with the writer and the kind of text.
"""

import argparse
import json
import struct
import sys
import threading
import zlib

sys.dont_write_bytecode = True

from player import PASSWORD, SERVER, Canaries, Failed, Person, Play, part  # noqa: E402

NO_EVENT = "$" + "A" * 43
NO_ROOM = "!" + "A" * 43
MEDIA = "/_matrix/media/v3"
FILES = "/_matrix/client/v1/media"
AT_ONCE = 8
SLIDING = "/_matrix/client/unstable/org.matrix.simplified_msc3575/sync"


def png(comment):
    """Sixteen red pixels with a text in them."""
    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))
    header = struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0)
    pixels = chunk(b"IDAT", zlib.compress((b"\0" + b"\xff\0\0" * 4) * 4))
    text = chunk(b"tEXt", b"Comment\0" + comment.encode())
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + text + pixels + chunk(b"IEND", b"")


def room_ids(answer):
    return sorted(answer.get("rooms", {}).get("join", {}))


class Steps:
    def __init__(self, a, b):
        self.anna, self.ben, self.carl = Person("anna", a), Person("ben", a), Person("carl", b)
        self.canaries = Canaries()
        self.play = Play([self.anna, self.ben, self.carl], self.canaries, [a, b])

    def run(self):
        self.before_login()
        self.logins()
        self.people()
        self.rooms()
        self.members()
        self.texts()
        self.relations()
        self.polls_and_others()
        self.files()
        self.states()
        self.signs()
        self.settings()
        self.filters()
        self.syncs()
        self.histories()
        self.searches()
        self.directories()
        self.devices_and_keys()
        self.errors()
        self.endings()

    # What most steps need

    def room(self, name, *rest):
        return f"/rooms/{part(name)}" + "".join(f"/{part(piece)}" for piece in rest)

    def send(self, person, step, room, content, kind="m.room.message", transaction=None):
        """The id of the event; one that no event has if it is refused."""
        path = self.room(room, "send", kind, transaction or person.transaction())
        return self.play.request(person, step, "PUT", path, json=content).get("event_id", NO_EVENT)

    def say(self, person, step, room, kind=None, **content):
        content = {"msgtype": "m.text", "body": self.play.write(person, kind or step)} | content
        return self.send(person, step, room, content)

    def state(self, person, step, room, kind, content, key=None):
        path = self.room(room, "state", kind, *([] if key is None else [key]))
        return self.play.request(person, step, "PUT", path, json=content)

    def create(self, person, step, **content):
        return self.play.request(person, step, "POST", "/createRoom", json=content)["room_id"]

    # Logins

    def before_login(self):
        play, anna = self.play, self.anna
        play.request(anna, "versions", "GET", "/_matrix/client/versions")
        play.request(anna, "well-known file", "GET", "/.well-known/matrix/client")
        play.request(anna, "ways to log in", "GET", "/login")
        play.request(anna, "preflight", "OPTIONS", "/login", headers={
            "Origin": "http://app.example.org", "Access-Control-Request-Method": "POST"})
        play.request(anna, "no token", "GET", "/account/whoami")
        play.request(anna, "unknown token", "GET", "/account/whoami", headers={"Authorization": "Bearer syt_nothing"})
        play.request(anna, "sync without a token", "GET", "/sync")
        play.request(anna, "name is free", "GET", "/register/available?username=anna")
        play.request(anna, "registration without a stage", "POST", "/register", json={
            "username": "anna", "password": PASSWORD})
        for person in (self.anna, self.ben, self.carl):
            answer = play.request(person, f"account of {person.name}", "POST", "/register", json={
                "username": person.name, "password": PASSWORD, "auth": {"type": "m.login.dummy"},
                "device_id": f"{person.name.upper()}FIRST", "initial_device_display_name": "first app"})
            person.token = answer["access_token"]
        play.request(anna, "name is taken", "GET", "/register/available?username=anna")
        play.request(anna, "account of a taken name", "POST", "/register", headers={}, json={
            "username": "anna", "password": PASSWORD, "auth": {"type": "m.login.dummy"}})

    def login(self, person, step, content, device):
        return self.play.request(person, step, "POST", "/login", json=content | {
            "device_id": device, "initial_device_display_name": "app of a test"})

    def logins(self):
        play, anna = self.play, self.anna
        password = {"type": "m.login.password", "password": PASSWORD}
        self.login(anna, "wrong password", password | {
            "identifier": {"type": "m.id.user", "user": "anna"}, "password": "wrong-horse-battery"}, "X")
        self.login(anna, "unknown way to log in", {"type": "m.login.nothing"}, "X")
        for person in (self.anna, self.ben, self.carl):
            answer = self.login(person, f"{person.name} logs in", password | {
                "identifier": {"type": "m.id.user", "user": person.name}}, f"{person.name.upper()}MAIN")
            person.token, person.since = answer["access_token"], None
        play.request(anna, "whoami", "GET", "/account/whoami")
        play.request(anna, "whoami of r0", "GET", "/_matrix/client/r0/account/whoami")
        play.request(anna, "token in the query", "GET", f"/account/whoami?access_token={anna.token}",
            headers={}, shown=dict)
        token = play.request(anna, "token for another app", "POST", "/_matrix/client/v1/login/get_token", json={})
        answer = self.login(anna, "login by token", {
            "type": "m.login.token", "token": token.get("login_token", "none")}, "ANNATOKEN")
        self.other = Person("anna", anna.address)
        self.other.token = answer.get("access_token")
        answer = self.login(self.ben, "login with a token to refresh", password | {
            "identifier": {"type": "m.id.user", "user": "ben"}, "refresh_token": True}, "BENREFRESH")
        play.request(self.ben, "token is refreshed", "POST", "/refresh", headers={}, json={
            "refresh_token": answer.get("refresh_token", "none")})
        play.request(anna, "capabilities", "GET", "/capabilities")
        play.request(anna, "voip server", "GET", "/voip/turnServer")
        play.request(anna, "media limits", "GET", f"{FILES}/config")

    def people(self):
        play, anna, ben = self.play, self.anna, self.ben
        name = f"/profile/{part(anna.id)}"
        play.request(anna, "display name", "PUT", f"{name}/displayname", json={"displayname": play.word(anna,
            "display name")})
        play.request(anna, "avatar", "PUT", f"{name}/avatar_url", json={"avatar_url": f"mxc://{SERVER}/{'a' * 24}"})
        play.request(anna, "own field of a profile", "PUT", f"{name}/org.example.pronouns", json={
            "org.example.pronouns": play.word(anna, "profile field")})
        play.request(ben, "profile", "GET", name)
        play.request(ben, "one field of a profile", "GET", f"{name}/displayname")
        play.request(ben, "profile of nobody", "GET", f"/profile/{part('@nobody:' + SERVER)}")
        play.request(ben, "other's display name", "PUT", f"{name}/displayname", json={"displayname": "x"})
        play.request(anna, "presence", "PUT", f"/presence/{part(anna.id)}/status", json={
            "presence": "unavailable", "status_msg": play.write(anna, "status")})
        play.request(anna, "own presence", "GET", f"/presence/{part(anna.id)}/status", shown=lambda body: sorted(body))

    def rooms(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        self.private = self.create(
            anna, "private room", preset="private_chat", name=play.word(anna, "room name"),
            topic=play.write(anna, "room topic"), invite=[ben.id])
        self.open = self.create(
            anna, "public room", preset="public_chat", visibility="public", name=play.word(anna, "public name"),
            topic=play.write(anna, "public topic"), room_alias_name="crew")
        self.direct = self.create(anna, "direct chat", preset="trusted_private_chat", is_direct=True, invite=[ben.id])
        self.old = self.create(ben, "room of version 10", room_version="10", preset="private_chat", invite=[anna.id])
        self.space = self.create(anna, "space", creation_content={"type": "m.space"}, name=play.word(anna,
            "space name"))
        self.noted = self.create(
            anna, "room with its own state", preset="private_chat", initial_state=[
                {"type": "m.room.guest_access", "state_key": "", "content": {"guest_access": "forbidden"}},
                {"type": "org.example.note", "state_key": "", "content": {"note": play.write(anna, "initial state")}}])
        # For what a gateway may refuse: the other rooms stay as they are.
        self.aside = self.create(anna, "room for other events", preset="trusted_private_chat", invite=[ben.id])
        play.request(ben, "ben joins the room for other events", "POST", f"/join/{part(self.aside)}", json={})
        play.request(anna, "room of an unknown version", "POST", "/createRoom", json={"room_version": "999"})
        play.request(anna, "alias is taken", "POST", "/createRoom", json={"room_alias_name": "crew"})
        play.request(carl, "others' room", "GET", self.room(self.private, "state"))

    def members(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        play.request(ben, "ben joins", "POST", self.room(self.private, "join"), json={})
        play.request(ben, "ben joins the direct chat", "POST", f"/join/{part(self.direct)}", json={})
        play.request(anna, "anna joins the old room", "POST", self.room(self.old, "join"), json={})
        play.request(ben, "ben joins by alias", "POST", f"/join/{part('#crew:' + SERVER)}", json={
            "reason": play.write(ben, "join reason")})
        play.request(carl, "carl joins by alias", "POST", f"/join/{part('#crew:' + SERVER)}", json={})
        play.request(carl, "join without an invitation", "POST", self.room(self.private, "join"), json={})
        play.request(anna, "invitation with a reason", "POST", self.room(self.private, "invite"), json={
            "user_id": carl.id, "reason": play.write(anna, "invite reason")})
        play.request(carl, "invitation is declined", "POST", self.room(self.private, "leave"), json={
            "reason": play.write(carl, "leave reason")})
        play.request(anna, "invitation of a member", "POST", self.room(self.private, "invite"),
            json={"user_id": ben.id})
        play.request(anna, "kick", "POST", self.room(self.open, "kick"), json={
            "user_id": carl.id, "reason": play.write(anna, "kick reason")})
        play.request(anna, "ban", "POST", self.room(self.open, "ban"), json={
            "user_id": carl.id, "reason": play.write(anna, "ban reason")})
        play.request(carl, "join of a banned person", "POST", self.room(self.open, "join"), json={})
        play.request(anna, "unban", "POST", self.room(self.open, "unban"), json={"user_id": carl.id})
        play.request(carl, "carl joins again", "POST", self.room(self.open, "join"), json={})
        play.request(ben, "kick without the right", "POST", self.room(self.private, "kick"), json={"user_id": anna.id})
        play.request(carl, "knock on a room without knocks", "POST", f"/knock/{part(self.private)}", json={})
        self.state(anna, "rule for knocks", self.noted, "m.room.join_rules", {"join_rule": "knock"})
        play.request(carl, "knock", "POST", f"/knock/{part(self.noted)}", json={"reason": play.write(carl, "knock")})
        self.state(anna, "member event", self.private, "m.room.member", {
            "membership": "join", "displayname": play.word(anna, "name in a room")}, anna.id)
        play.request(anna, "joined members", "GET", self.room(self.private, "joined_members"))
        play.request(anna, "members", "GET", self.room(self.open, "members"), shown=by_key)
        play.request(anna, "members who are there", "GET", self.room(self.open, "members") + "?membership=join",
            shown=by_key)
        play.request(anna, "joined rooms", "GET", "/joined_rooms")

    # Messages

    def texts(self):
        anna, ben, carl = self.anna, self.ben, self.carl
        room = self.private
        self.first = self.say(anna, "text", room)
        self.say(ben, "notice", room, msgtype="m.notice")
        self.say(anna, "emote", room, msgtype="m.emote")
        self.say(anna, "html", room, format="org.matrix.custom.html",
                 formatted_body=f"<b>{self.play.write(anna, 'html part')}</b>")
        self.say(anna, "mention", room, body=f"ben: {self.play.write(anna, 'mention')}", **{
            "m.mentions": {"user_ids": [ben.id]}})
        self.say(anna, "mention of all", room, body=f"@room {self.play.write(anna, 'mention of all')}", **{
            "m.mentions": {"room": True}})
        self.say(anna, "own field in a message", room, **{"org.example.note": {"deep": self.play.write(anna,
            "own field")}})
        self.say(anna, "characters of all kinds", room,
                 body=f"{self.play.word(anna, 'characters')} \u2028 \u0000 \\ \" ä 🦀 {'x' * 3000}")
        self.say(anna, "own kind of message", room, msgtype="org.example.kind")
        self.say(anna, "words in what servers need", self.aside, msgtype=self.play.word(anna, "kind of message"), **{
            "m.mentions": {"note": self.play.word(anna, "member of mentions")},
            "m.relates_to": {"note": self.play.word(anna, "member of relations")}})
        self.say(anna, "long text", self.aside, body=self.play.write(anna, "long text") + "x" * 50_000)
        self.say(ben, "text in a direct chat", self.direct)
        self.say(ben, "text in the old room", self.old)
        self.said = self.say(anna, "text in the public room", self.open)
        self.say(carl, "outsider's text", self.open)
        self.say(ben, "text after the outsider's", self.open)
        content = {"msgtype": "m.text", "body": self.play.write(anna, "sent twice")}
        self.send(anna, "text with its own transaction", room, content, transaction="again")
        self.send(anna, "the same transaction once more", room, content, transaction="again")
        self.send(anna, "the same transaction in another room", self.direct, content, transaction="again")
        content = {"msgtype": "m.text", "body": self.play.write(anna, "other text, same transaction")}
        self.send(anna, "the same transaction with another text", room, content, transaction="again")
        self.play.request(
            anna, "the same transaction by r0", "PUT",
            "/_matrix/client/r0" + self.room(room, "send", "m.room.message", "again"), json=content)
        content = {"msgtype": "m.text", "body": self.play.write(anna, "other device, same transaction")}
        self.send(self.other, "the same transaction of another device", room, content, transaction="again")
        content = {"msgtype": "m.text", "body": self.play.write(ben, "other person, same transaction")}
        self.send(ben, "the same transaction of another person", room, content, transaction="again")
        self.at_once()
        self.send(anna, "empty text", room, {"msgtype": "m.text", "body": ""})
        self.send(anna, "message without a body", room, {"msgtype": "m.text"})
        self.send(anna, "message without members", room, {})
        path = "/_matrix/client/r0" + self.room(room, "send", "m.room.message", anna.transaction())
        self.play.request(anna, "text by r0", "PUT", path, json={
            "msgtype": "m.text", "body": self.play.write(anna, "text by r0")})
        self.play.request(anna, "text without a transaction", "POST", self.room(self.aside, "send",
            "m.room.message"), json={
            "msgtype": "m.text", "body": self.play.write(anna, "no transaction")})

    def at_once(self):
        """Texts over many connections, and each of them twice: the order is open, and each arrives once.

        The room is left, so that the order is seen nowhere else.
        """
        room = self.create(self.anna, "room for texts at once", preset="trusted_private_chat", invite=[self.ben.id])
        self.play.request(self.ben, "ben joins the room for texts at once", "POST", f"/join/{part(room)}", json={})
        people = [Person("anna", self.anna.address) for _ in range(AT_ONCE)]
        texts = [self.play.write(self.anna, "text at once") for _ in people]
        statuses, threads = [], []
        for number, (person, text) in enumerate(zip(people, texts)):
            person.token = self.anna.token
            path = self.room(room, "send", "m.room.message", f"at-once-{number}")

            def send(person=person, path=path, text=text):
                answer = person.request("PUT", path, json={"msgtype": "m.text", "body": text})
                statuses.append((answer.status_code, answer.json().get("event_id")))

            threads += [threading.Thread(target=send) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        came = self.ben.news()["rooms"]["join"][room]["timeline"]["events"]
        self.anna.news()
        self.play.line(self.anna, "texts at once", "PUT", {
            "status": sorted({status for status, _ in statuses}), "events": len({event for _, event in statuses}),
            "received": sorted(event["content"]["body"] for event in came)})
        for person in (self.ben, self.anna):
            self.play.request(person, f"{person.name} leaves the room for texts at once", "POST",
                self.room(room, "leave"), json={})

    def relations(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        room = self.private
        reply = {"m.relates_to": {"m.in_reply_to": {"event_id": self.first}}}
        self.say(ben, "reply", room, **reply)
        self.root = self.say(anna, "beginning of a thread", room)
        thread = {"m.relates_to": {
            "rel_type": "m.thread", "event_id": self.root, "is_falling_back": True,
            "m.in_reply_to": {"event_id": self.root}}}
        self.say(ben, "text in a thread", room, **thread)
        self.answer = self.say(anna, "second text in a thread", room, **thread)

        def edit(person, step, event, **more):
            text = play.write(person, step)
            content = {"msgtype": "m.text", "body": f"* {text}", "m.new_content": {"msgtype": "m.text", "body": text}}
            content["m.relates_to"] = {"rel_type": "m.replace", "event_id": event}
            return self.send(person, step, room, content | more)

        edit(anna, "edit", self.first)
        edit(anna, "second edit", self.first)
        edit(anna, "edit in a thread", self.answer)
        edit(ben, "edit of another's text", self.first)
        edit(ben, "edit of no event", NO_EVENT)

        def react(person, step, event, key, where=room):
            return self.send(person, step, where, {
                "m.relates_to": {"rel_type": "m.annotation", "event_id": event, "key": key}}, "m.reaction")

        self.reaction = react(ben, "reaction", self.first, "👍")
        react(ben, "the same reaction once more", self.first, "👍")
        react(anna, "reaction that is a word", self.first, play.word(anna, "reaction"))
        react(carl, "outsider's reaction", self.said, "🦀", self.open)
        self.say(ben, "reference", room, **{"m.relates_to": {"rel_type": "m.reference", "event_id": self.first}})
        gone = self.say(anna, "text that goes", room)
        play.request(anna, "redaction", "PUT", self.room(room, "redact", gone, anna.transaction()), json={
            "reason": play.write(anna, "redaction reason")})
        play.request(ben, "redaction of a reaction", "PUT", self.room(room, "redact", self.reaction, "r1"), json={})
        play.request(ben, "the same redaction once more", "PUT", self.room(room, "redact", self.reaction, "r1"),
            json={})
        play.request(ben, "redaction without the right", "PUT", self.room(room, "redact", self.first, "r2"), json={})
        self.redacted = gone
        self.outsider()
        base = "/_matrix/client/v1" + self.room(room, "relations", self.first)
        play.request(ben, "relations", "GET", base)
        play.request(ben, "relations of a kind", "GET", f"{base}/m.replace")
        play.request(ben, "relations of a kind and type", "GET", f"{base}/m.annotation/m.reaction?dir=f")
        page = play.request(ben, "page of relations", "GET", f"{base}?limit=1")
        play.request(ben, "next page of relations", "GET", base, params={"limit": 1, "from": page.get("next_batch")})
        play.request(ben, "events of a thread", "GET", "/_matrix/client/v1" + self.room(room, "relations",
            self.root, "m.thread"))
        play.request(ben, "events of a thread, all", "GET", "/_matrix/client/v1" + self.room(
            room, "relations", self.root) + "?recurse=true&dir=f")
        play.request(ben, "relations of no event", "GET", "/_matrix/client/v1" + self.room(room, "relations", NO_EVENT))
        play.request(ben, "threads", "GET", "/_matrix/client/v1" + self.room(room, "threads"))
        play.request(ben, "threads with own words", "GET", "/_matrix/client/v1" + self.room(room,
            "threads") + "?include=participated&limit=1")

    def outsider(self):
        """Carl writes past the gateway, and takes what it has sealed."""
        play, anna, carl = self.play, self.anna, self.carl
        room = self.open
        event = self.say(carl, "outsider's html", room, format="org.matrix.custom.html",
                         formatted_body=f"<b>{play.write(carl, 'html of an outsider')}</b>")
        text = play.write(carl, "edit of an outsider")
        self.send(carl, "outsider's edit", room, {
            "msgtype": "m.text", "body": f"* {text}", "m.new_content": {"msgtype": "m.text", "body": text},
            "m.relates_to": {"rel_type": "m.replace", "event_id": event}})
        self.say(carl, "outsider's text in a thread", room, **{
            "m.relates_to": {"rel_type": "m.thread", "event_id": self.said}})
        self.say(carl, "outsider's location", room, msgtype="m.location", geo_uri="geo:1,2")
        self.say(carl, "outsider's false flag", room, encrypted=True)
        self.say(carl, "outsider's false envelope", room, encrypted=True, **{"pawl.envelope": "EsDFoFIpPy0sAAaI"})
        sealed = carl.request("GET", self.room(room, "event", self.said)).json()["content"]
        self.send(carl, "outsider's copy of a text", room, sealed)
        play.request(anna, "thread of an outsider", "GET", "/_matrix/client/v1" + self.room(room, "relations",
            self.said))
        play.request(anna, "root of an outsider's thread", "GET", self.room(room, "event", self.said))
        play.request(anna, "edited text of an outsider", "GET", self.room(room, "event", event))

    def polls_and_others(self):
        play, anna, ben = self.play, self.anna, self.ben
        room = self.aside

        def text(step):
            return [{"body": play.write(anna, step), "mimetype": "text/plain"}]

        poll = self.send(anna, "poll", room, {
            "m.text": text("poll as text"),
            "m.poll": {"kind": "m.disclosed", "max_selections": 1, "question": {"m.text": text("poll question")},
                       "answers": [{"m.id": "a", "m.text": text("poll answer")}]}}, "m.poll.start")
        self.send(ben, "vote", room, {
            "m.relates_to": {"rel_type": "m.reference", "event_id": poll}, "m.selections": ["a"]}, "m.poll.response")
        self.send(anna, "end of a poll", room, {
            "m.relates_to": {"rel_type": "m.reference", "event_id": poll}, "m.text": text("poll end")}, "m.poll.end")
        old = self.send(anna, "poll of MSC3381", room, {
            "org.matrix.msc1767.text": play.write(anna, "old poll"),
            "org.matrix.msc3381.poll.start": {
                "kind": "org.matrix.msc3381.poll.disclosed", "max_selections": 1,
                "question": {"org.matrix.msc1767.text": play.write(anna, "old poll question")},
                "answers": [{"id": "a", "org.matrix.msc1767.text": play.write(anna, "old poll answer")}]},
        }, "org.matrix.msc3381.poll.start")
        self.send(ben, "vote of MSC3381", room, {
            "m.relates_to": {"rel_type": "m.reference", "event_id": old},
            "org.matrix.msc3381.poll.response": {"answers": ["a"]}}, "org.matrix.msc3381.poll.response")
        self.say(anna, "location", self.private, msgtype="m.location", geo_uri="geo:47.4,8.5", **{
            "m.location": {"uri": "geo:47.4,8.5", "description": play.write(anna, "location description")}})
        self.send(anna, "live location", room, {
            "m.beacon_info": 1,
            "m.location": {"uri": "geo:47.4,8.5", "description": play.write(anna, "live location")}}, "m.beacon")
        self.send(anna, "sticker", room, {
            "body": play.write(anna, "sticker"), "url": f"mxc://{SERVER}/{'b' * 24}", "info": {}}, "m.sticker")
        self.send(anna, "own event", room, {"note": play.write(anna, "own event")}, "org.example.event")
        self.send(anna, "encrypted event", self.private, {
            "algorithm": "m.megolm.v1.aes-sha2", "ciphertext": "AwgA", "session_id": "s", "device_id": "ANNAMAIN",
            "sender_key": "k", "note": play.word(anna, "member of an encrypted event")}, "m.room.encrypted")
        self.send(anna, "call", self.direct, {
            "call_id": "c1", "party_id": "p", "version": "1", "lifetime": 60000, "invitee": ben.id,
            "offer": {"type": "offer", "sdp": "v=0"}}, "m.call.invite")
        self.send(anna, "end of a call", self.direct, {
            "call_id": "c1", "party_id": "p", "version": "1", "reason": "user_hangup"}, "m.call.hangup")
        self.send(anna, "verification", self.direct, {
            "msgtype": "m.key.verification.request", "body": play.write(anna, "verification"),
            "from_device": "ANNAMAIN", "methods": ["m.sas.v1"], "to": ben.id})

    def files(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        room = self.private

        # Another one for each refused upload, so that the later placeholders stay the same.
        missing = iter("cdef")

        def upload(person, step, data, kind, name):
            answer = play.request(
                person, step, "POST", f"{MEDIA}/upload", params={"filename": name}, data=data,
                headers={"Authorization": f"Bearer {person.token}", "Content-Type": kind})
            return answer.get("content_uri", f"mxc://{SERVER}/{next(missing) * 24}")

        picture = upload(anna, "picture is uploaded", png(play.word(anna, "picture")), "image/png",
            f"{play.word(anna, 'file name')}.png")
        plain = upload(anna, "text file is uploaded", play.write(anna, "file").encode(), "text/plain", "notes.txt")
        self.say(anna, "picture", room, kind="picture caption", msgtype="m.image", url=picture, filename=play.word(
            anna, "filename"), info={"mimetype": "image/png", "w": 4, "h": 4, "size": 100})
        self.say(anna, "text file", room, kind="file caption", msgtype="m.file", url=plain,
            info={"mimetype": "text/plain"})
        self.say(anna, "audio", room, msgtype="m.audio", url=plain)
        self.say(anna, "video", room, msgtype="m.video", url=plain)
        self.say(anna, "encrypted file", room, msgtype="m.file", file={
            "url": plain, "v": "v2", "iv": "AAAAAAAAAAAAAAAAAAAAAA", "hashes": {"sha256": "AAAA"},
            "key": {"kty": "oct", "alg": "A256CTR", "ext": True, "k": "AAAA", "key_ops": ["encrypt", "decrypt"]}})
        path = picture.removeprefix("mxc://")
        play.request(ben, "download", "GET", f"{FILES}/download/{path}")
        play.request(ben, "download under a name", "GET", f"{FILES}/download/{path}/name.png")
        play.request(ben, "thumbnail", "GET", f"{FILES}/thumbnail/{path}?width=2&height=2&method=scale")
        play.request(ben, "download of a text", "GET", f"{FILES}/download/{plain.removeprefix('mxc://')}")
        play.request(ben, "download without a token", "GET", f"{FILES}/download/{path}", headers={})
        play.request(ben, "download the old way", "GET", f"{MEDIA}/download/{path}")
        play.request(ben, "no such file", "GET", f"{FILES}/download/{SERVER}/{'y' * 24}")
        play.request(anna, "too large a file", "POST", f"{MEDIA}/upload", data=b"x" * 300_000, headers={
            "Authorization": f"Bearer {anna.token}", "Content-Type": "application/octet-stream"})
        later = play.request(anna, "file for later", "POST", "/_matrix/media/v1/create", json={}, shown=sorted)
        later = later.get("content_uri", f"mxc://{SERVER}/{'z' * 24}").removeprefix("mxc://")
        play.request(anna, "file that was announced", "PUT", f"{MEDIA}/upload/{later}", data=play.write(
            anna, "late file").encode(), headers={"Authorization": f"Bearer {anna.token}",
                "Content-Type": "text/plain"})
        shared = upload(carl, "outsider's file is uploaded", play.write(carl, "outsider's file").encode(),
            "text/plain", "c.txt")
        self.say(carl, "outsider's file", self.open, msgtype="m.file", url=shared)
        play.request(ben, "download of an outsider's file", "GET", f"{FILES}/download/{shared.removeprefix('mxc://')}")

    # Rooms

    def states(self):
        play, anna, ben = self.play, self.anna, self.ben
        room = self.private
        self.state(anna, "name", room, "m.room.name", {"name": play.word(anna, "name")})
        self.state(anna, "topic", room, "m.room.topic", {"topic": play.write(anna, "topic")})
        self.state(anna, "topic with an empty key", room, "m.room.topic", {
            "topic": play.write(anna, "second topic"),
            "m.topic": {"m.text": [{"body": play.write(anna, "rich topic")}]}}, "")
        self.state(anna, "picture of a room", room, "m.room.avatar", {"url": f"mxc://{SERVER}/{'x' * 24}"})
        self.state(anna, "pinned messages", room, "m.room.pinned_events", {"pinned": [self.first, self.root]})
        self.state(anna, "history for members", room, "m.room.history_visibility", {"history_visibility": "joined"})
        levels = play.request(anna, "power levels", "GET", self.room(room, "state", "m.room.power_levels"))
        self.state(anna, "new power levels", room, "m.room.power_levels", levels | {
            "users": levels.get("users", {}) | {ben.id: 50}})
        self.state(ben, "state without the right", room, "m.room.server_acl", {"allow": ["*"]})
        self.state(anna, "own state", self.aside, "org.example.state", {"note": play.write(anna, "own state")})
        self.state(anna, "widget", self.aside, "im.vector.modular.widgets", {
            "type": "m.custom", "url": "https://example.org", "name": play.word(anna, "widget")}, "w1")
        self.state(anna, "location that is shared", self.aside, "m.beacon_info", {
            "description": play.write(anna, "beacon"), "timeout": 60000, "live": True}, anna.id)
        self.state(anna, "child of a space", self.space, "m.space.child", {"via": [SERVER]}, room)
        self.state(anna, "parent of a room", room, "m.space.parent", {"via": [SERVER]}, self.space)
        play.request(anna, "one state event", "GET", self.room(room, "state", "m.room.name"))
        play.request(anna, "one state event, whole", "GET", self.room(room, "state", "m.room.topic",
            "") + "?format=event")
        play.request(anna, "no such state", "GET", self.room(room, "state", "org.example.nothing"))
        play.request(anna, "state", "GET", self.room(room, "state"), shown=by_type)
        play.request(anna, "hierarchy of a space", "GET", "/_matrix/client/v1" + self.room(self.space, "hierarchy"))
        play.request(anna, "summary of a room", "GET", f"/_matrix/client/v1/room_summary/{part('#crew:' + SERVER)}")

    def signs(self):
        play, anna, ben = self.play, self.anna, self.ben
        room = self.private
        typing = self.room(room, "typing", ben.id)
        play.request(ben, "typing", "PUT", typing, json={"typing": True, "timeout": 600_000})
        play.request(ben, "no longer typing", "PUT", typing, json={"typing": False})
        play.request(ben, "other's typing", "PUT", self.room(room, "typing", anna.id), json={"typing": True})
        play.request(ben, "receipt", "POST", self.room(room, "receipt", "m.read", self.first), json={})
        play.request(ben, "receipt of a thread", "POST", self.room(room, "receipt", "m.read", self.answer), json={
            "thread_id": self.root})
        play.request(ben, "private receipt", "POST", self.room(room, "receipt", "m.read.private", self.answer), json={})
        play.request(anna, "read markers", "POST", self.room(room, "read_markers"), json={
            "m.fully_read": self.first, "m.read": self.answer})
        play.request(anna, "receipt of an unknown kind", "POST", self.room(room, "receipt", "m.none",
            self.first), json={})
        self.say(anna, "text that notifies", room)

    def settings(self):
        play, anna, ben = self.play, self.anna, self.ben
        user = f"/user/{part(anna.id)}"
        room = user + self.room(self.private)
        play.request(anna, "account data", "PUT", f"{user}/account_data/org.example.data", json={
            "note": play.write(anna, "account data")})
        play.request(anna, "account data is read", "GET", f"{user}/account_data/org.example.data")
        play.request(anna, "direct chats", "PUT", f"{user}/account_data/m.direct", json={ben.id: [self.direct]})
        play.request(anna, "ignored people", "PUT", f"{user}/account_data/m.ignored_user_list", json={
            "ignored_users": {f"@nobody:{SERVER}": {}}})
        play.request(anna, "no such account data", "GET", f"{user}/account_data/org.example.nothing")
        play.request(ben, "other's account data", "GET", f"{user}/account_data/org.example.data")
        play.request(anna, "account data of a room", "PUT", f"{room}/account_data/org.example.data", json={
            "draft": play.write(anna, "room data")})
        play.request(anna, "account data of a room is read", "GET", f"{room}/account_data/org.example.data")
        play.request(anna, "tag", "PUT", f"{room}/tags/u.{play.word(anna, 'tag')}", json={"order": 0.5})
        play.request(anna, "favourite", "PUT", f"{room}/tags/m.favourite", json={"order": 0.1})
        play.request(anna, "tags", "GET", f"{room}/tags")
        play.request(anna, "tag goes", "DELETE", f"{room}/tags/m.favourite")
        play.request(anna, "push rules", "GET", "/pushrules/")
        rule = "/pushrules/global/content/own"
        pattern = play.word(anna, "push pattern")
        play.request(anna, "push rule", "PUT", rule, json={
            "actions": ["notify", {"set_tweak": "highlight"}], "pattern": pattern})
        play.request(anna, "push rule is read", "GET", rule)
        self.say(self.ben, "text with a word that notifies", self.aside,
            body=f"{pattern} {play.write(self.ben, 'own word')}")
        play.request(anna, "push rule is off", "PUT", f"{rule}/enabled", json={"enabled": False})
        play.request(anna, "actions of a push rule", "PUT", f"{rule}/actions", json={"actions": []})
        play.request(anna, "push rule goes", "DELETE", rule)
        play.request(anna, "no such push rule", "GET", rule)
        play.request(anna, "pusher", "POST", "/pushers/set", json={
            "kind": "http", "app_id": "org.example", "pushkey": "key", "app_display_name": "app",
            "device_display_name": "phone", "lang": "en",
            "data": {"url": "https://push.example.org/_matrix/push/v1/notify", "format": "event_id_only"}})
        play.request(anna, "pushers", "GET", "/pushers")
        play.request(anna, "pusher goes", "POST", "/pushers/set", json={"kind": None, "app_id": "org.example",
            "pushkey": "key"})
        play.request(ben, "notifications", "GET", "/notifications?limit=5")
        play.request(ben, "notifications of mentions", "GET", "/notifications?only=highlight&limit=2")
        play.request(anna, "token for another service", "POST", f"{user}/openid/request_token", json={})

    # Reading

    def filters(self):
        play, anna = self.play, self.anna
        user = f"/user/{part(anna.id)}/filter"
        self.lazy = play.request(anna, "filter", "POST", user, json={
            "room": {"timeline": {"limit": 5, "lazy_load_members": True}, "state": {"lazy_load_members": True}},
            "presence": {"types": []}}).get("filter_id", "0")
        self.fields = play.request(anna, "filter of fields", "POST", user, json={
            "event_fields": ["type", "content.body", "sender"], "room": {"timeline": {"limit": 5}},
            "presence": {"types": []}}).get("filter_id", "0")
        play.request(anna, "filter is read", "GET", f"{user}/{self.lazy}")
        play.request(anna, "no such filter", "GET", f"{user}/999")
        play.request(anna, "wrong filter", "POST", user, json={"room": {"timeline": {"limit": "many"}}})

    def syncs(self):
        play, anna, ben = self.play, self.anna, self.ben
        quiet = {"set_presence": "offline"}

        def sync(person, step, shown=None, **parameters):
            return play.request(person, step, "GET", "/sync", params=quiet | parameters, shown=shown)

        none = {"presence": {"types": []}}
        since = sync(anna, "first sync", filter=json.dumps(
            none | {"room": {"timeline": {"limit": 100}}})).get("next_batch")
        sync(anna, "first sync with few messages", filter=json.dumps(none | {"room": {"timeline": {"limit": 2}}}))
        sync(anna, "first sync with a stored filter", filter=self.lazy)
        sync(anna, "first sync with some fields", filter=self.fields)
        sync(anna, "sync of one room", filter=json.dumps(none | {"room": {"rooms": [self.direct]}}))
        sync(anna, "sync of one type", without_state, filter=json.dumps(
            none | {"room": {"timeline": {"types": ["m.reaction"]}}}))
        sync(anna, "sync as the federation has it", filter=json.dumps(
            none | {"event_format": "federation", "room": {"rooms": [self.direct], "timeline": {"limit": 2}}}))
        sync(anna, "sync with counts of threads", filter=json.dumps(none | {"room": {
            "rooms": [self.private], "timeline": {"limit": 3, "unread_thread_notifications": True}}}))
        sync(anna, "nothing new", since=since, timeout="0", filter=json.dumps(none))
        sync(anna, "whole state", without_device_lists, since=since, timeout="0", full_state="true",
            filter=json.dumps(none))
        sync(anna, "state after", filter=json.dumps(none | {"room": {"rooms": [self.direct]}}), use_state_after="true")
        self.waiting_sync("sync that waits", lambda: anna.request("GET", "/sync", params=quiet | {
            "since": since, "timeout": "30000", "filter": json.dumps(none)}))
        sync(anna, "sync with an unknown filter", filter="999")
        sync(anna, "sync since nothing", since="nothing")
        play.request(anna, "sync of r0", "GET", "/_matrix/client/r0/sync", params=quiet | {
            "filter": json.dumps(none | {"room": {"rooms": [self.direct]}})})
        self.sliding_syncs()

    def waiting_sync(self, step, ask):
        """Asks on a thread, lets Ben write, and prints what the waiting request got."""
        answers = []
        thread = threading.Thread(target=lambda: answers.append(ask()))
        thread.start()
        self.say(self.ben, f"text for the {step}", self.direct)
        thread.join()
        if not answers:
            raise Failed(f"{step} has no answer")
        self.play.line(self.anna, step, "GET /sync", {"status": answers[0].status_code, "body": answers[0].json()})

    def sliding_syncs(self):
        play, anna = self.play, self.anna
        state = [["m.room.name", ""], ["m.room.member", "$LAZY"]]
        lists = {"lists": {"all": {"ranges": [[0, 9]], "timeline_limit": 3, "required_state": state}}, "conn_id": "c"}

        def sliding(step, content, query="", **arguments):
            return play.request(anna, step, "POST", SLIDING + query, json=content, shown=without_times, **arguments)

        first = sliding("sliding sync", lists | {"extensions": {
            "to_device": {"enabled": False}, "e2ee": {"enabled": True}, "account_data": {"enabled": True},
            "receipts": {"enabled": True}, "typing": {"enabled": True}}})
        self.say(self.ben, "text for the sliding sync", self.direct)
        second = sliding("next sliding sync", lists, f"?pos={first.get('pos', '')}&timeout=0")
        more = {"lists": {"all": {"ranges": [[0, 9]], "timeline_limit": 9, "required_state": state}}, "conn_id": "c"}
        third = sliding("sliding sync with more messages", more, f"?pos={second.get('pos', '')}&timeout=0")
        sliding("sliding sync of one room", more | {"room_subscriptions": {
            self.private: {"timeline_limit": 2, "required_state": [["*", "*"]]}}},
                f"?pos={third.get('pos', '')}&timeout=0")
        sliding("sliding sync after nothing", lists, "?pos=nothing")

    def histories(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        messages = self.room(self.private, "messages")

        def read(person, step, **parameters):
            return play.request(person, step, "GET", messages, params=parameters)

        read(ben, "messages", dir="b", limit="200")
        read(ben, "messages from the beginning", dir="f", limit="200")
        token = read(ben, "page of messages", dir="b", limit="3").get("end")
        token = read(ben, "second page of messages", dir="b", limit="3", **{"from": token}).get("end")
        read(ben, "messages the other way", dir="f", limit="3", **{"from": token})
        read(ben, "messages of a type", dir="b", filter=json.dumps({"types": ["m.room.message"], "limit": 5}))
        read(ben, "messages of one person", dir="b", filter=json.dumps({"senders": [anna.id],
            "not_types": ["m.room.member"]}))
        read(ben, "messages with addresses", dir="b", filter=json.dumps({"contains_url": True}))
        read(ben, "messages with lazy members", dir="b", limit="2", filter=json.dumps({"lazy_load_members": True}))
        read(ben, "messages related to others'", dir="b", filter=json.dumps(
            {"related_by_senders": [ben.id], "related_by_rel_types": ["m.thread"]}))
        read(ben, "messages without a direction")
        read(carl, "messages of a room without carl", dir="b")
        play.request(carl, "outsider's messages", "GET", self.room(self.open, "messages") + "?dir=b&limit=100")
        play.request(ben, "messages with the outsider's", "GET", self.room(self.open, "messages") + "?dir=b&limit=100")
        play.request(ben, "context", "GET", self.room(self.private, "context", self.first) + "?limit=6")
        play.request(ben, "context of one", "GET", self.room(self.private, "context", self.answer) + "?limit=0")
        play.request(ben, "event", "GET", self.room(self.private, "event", self.first))
        play.request(ben, "event of a thread", "GET", self.room(self.private, "event", self.root))
        play.request(ben, "redacted event", "GET", self.room(self.private, "event", self.redacted))
        play.request(ben, "no such event", "GET", self.room(self.private, "event", NO_EVENT))
        play.request(carl, "event of a room without carl", "GET", self.room(self.private, "event", self.first))
        play.request(ben, "first event of a time", "GET", "/_matrix/client/v1" + self.room(
            self.private, "timestamp_to_event") + "?ts=0&dir=f")
        play.request(ben, "room at once", "GET", self.room(self.direct, "initialSync") + "?limit=5",
            shown=only_messages)
        play.request(ben, "event stream", "GET", "/_matrix/client/r0/events?timeout=0", shown=sorted)
        play.request(ben, "aliases of a room", "GET", self.room(self.open, "aliases"))

    def searches(self):
        play, anna, ben = self.play, self.anna, self.ben
        word = self.canaries.words[[kind for _, _, kind in self.canaries.words].index("text")][0]

        def search(step, term, **more):
            return play.request(ben, step, "POST", "/search", json={
                "search_categories": {"room_events": {"search_term": term, "order_by": "recent", **more}}})

        search("search", word)
        search("search with what is around", word, event_context={
            "before_limit": 1, "after_limit": 1, "include_profile": True})
        search("search in one room", word, filter={"rooms": [self.direct]})
        search("search of names", word, keys=["room.name"])
        search("search of nothing", play.word(ben, "search word"))
        play.request(ben, "search without categories", "POST", "/search", json={})
        play.until(
            anna, "search of people", "POST", "/user_directory/search", lambda answer: answer.get("results"),
            json={"search_term": "carl"})
        play.request(anna, "search of nobody", "POST", "/user_directory/search", json={
            "search_term": play.word(anna, "people search")})

    def directories(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        alias = f"/directory/room/{part('#other:' + SERVER)}"
        play.request(anna, "alias", "PUT", alias, json={"room_id": self.private})
        play.request(ben, "alias is looked up", "GET", alias)
        play.request(anna, "alias once more", "PUT", alias, json={"room_id": self.private})
        play.request(ben, "no such alias", "GET", f"/directory/room/{part('#nothing:' + SERVER)}")
        self.state(anna, "main alias", self.private, "m.room.canonical_alias", {"alias": f"#other:{SERVER}"})
        play.request(ben, "other's alias goes", "DELETE", f"/directory/room/{part('#crew:' + SERVER)}")
        play.request(anna, "alias goes", "DELETE", alias)
        play.request(anna, "visibility", "GET", f"/directory/list/room/{part(self.open)}")
        play.request(anna, "room is listed", "PUT", f"/directory/list/room/{part(self.open)}",
            json={"visibility": "public"})
        play.until(
            ben, "public rooms", "GET", "/publicRooms?limit=5",
            lambda answer: any(room["num_joined_members"] == 3 for room in answer.get("chunk", [])))
        play.request(ben, "search of public rooms", "POST", "/publicRooms", json={
            "limit": 5, "filter": {"generic_search_term": play.word(ben, "room search")}})
        play.request(ben, "networks", "GET", "/thirdparty/protocols")

    # Devices

    def devices_and_keys(self):
        play, anna, ben = self.play, self.anna, self.ben
        play.request(anna, "devices", "GET", "/devices", shown=without_times)
        play.request(anna, "name of a device", "PUT", "/devices/ANNAMAIN", json={
            "display_name": play.word(anna, "device name")})
        play.request(anna, "one device", "GET", "/devices/ANNAMAIN")
        play.request(anna, "no such device", "GET", "/devices/NONE")
        keys = {
            "algorithms": ["m.olm.v1.curve25519-aes-sha2", "m.megolm.v1.aes-sha2"], "device_id": "ANNAMAIN",
            "user_id": anna.id, "keys": {"curve25519:ANNAMAIN": "A" * 43, "ed25519:ANNAMAIN": "B" * 43},
            "signatures": {anna.id: {"ed25519:ANNAMAIN": "C" * 86}}}
        play.request(anna, "keys are uploaded", "POST", "/keys/upload", json={
            "device_keys": keys, "one_time_keys": {"signed_curve25519:AAAA": {
                "key": "D" * 43, "signatures": {anna.id: {"ed25519:ANNAMAIN": "E" * 86}}}},
            "fallback_keys": {"signed_curve25519:BBBB": {
                "key": "F" * 43, "fallback": True, "signatures": {anna.id: {"ed25519:ANNAMAIN": "G" * 86}}}}})
        play.request(ben, "keys", "POST", "/keys/query", json={"device_keys": {anna.id: []}})
        claim = {"one_time_keys": {anna.id: {"ANNAMAIN": "signed_curve25519"}}}
        play.request(ben, "key is claimed", "POST", "/keys/claim", json=claim)
        play.request(ben, "fallback key is claimed", "POST", "/keys/claim", json=claim)
        play.request(ben, "changes of keys", "GET", "/keys/changes", params={"from": ben.since, "to": ben.since})
        message = {"messages": {ben.id: {"*": {"note": play.write(anna, "message to a device")}}}}
        path = f"/sendToDevice/org.example.message/{anna.transaction()}"
        play.request(anna, "message to a device", "PUT", path, json=message)
        play.request(anna, "the same message to a device once more", "PUT", path, json=message)
        play.request(anna, "encrypted message to a device", "PUT",
            f"/sendToDevice/m.room.encrypted/{anna.transaction()}", json={
            "messages": {ben.id: {"BENMAIN": {"algorithm": "m.olm.v1.curve25519-aes-sha2", "ciphertext": {},
                "sender_key": "k"}}}})
        play.request(anna, "backup of keys", "POST", "/room_keys/version", json={
            "algorithm": "m.megolm_backup.v1.curve25519-aes-sha2", "auth_data": {"public_key": "A" * 43,
                "signatures": {}}})
        play.request(anna, "backups", "GET", "/room_keys/version")
        play.request(anna, "key is backed up", "PUT", f"/room_keys/keys/{part(self.private)}/{'S' * 43}?version=1", json={
            "first_message_index": 0, "forwarded_count": 0, "is_verified": False, "session_data": {"ciphertext": "A"}},
            shown=sorted)
        play.request(anna, "device goes, unproven", "DELETE", "/devices/ANNATOKEN", json={})
        play.request(anna, "device goes", "DELETE", "/devices/ANNATOKEN", json={"auth": {
            "type": "m.login.password", "identifier": {"type": "m.id.user", "user": "anna"}, "password": PASSWORD}})
        play.request(self.other, "token of a device that is gone", "GET", "/account/whoami")

    # Errors

    def errors(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        room = self.private
        self.say(carl, "text to a room without carl", room)
        self.say(anna, "text to no room", NO_ROOM)
        self.say(anna, "text to no id of a room", "nothing")
        self.say(anna, "too large a text", room, body=self.play.write(anna, "too large a text") + "x" * 70_000)
        stranger = Person("stranger", anna.address)
        stranger.token = "syt_nothing"
        self.say(stranger, "text of nobody", room)
        path = self.room(self.aside, "send", "m.room.message")

        def raw(step, data, kind="application/json"):
            play.request(anna, step, "PUT", f"{path}/{anna.transaction()}", data=data, headers={
                "Authorization": f"Bearer {anna.token}", "Content-Type": kind})

        raw("malformed JSON", b'{"msgtype":')
        raw("no JSON", self.play.write(anna, "no JSON").encode())
        raw("list as a message", b"[]")
        raw("message in UTF-16", json.dumps({
            "msgtype": "m.text", "body": self.play.write(anna, "UTF-16")}).encode("utf-16"))
        raw("text with a name twice", (
            f'{{"msgtype":"m.text","body":"{play.word(anna, "first of two")}",'
            f'"body":"{play.word(anna, "second of two")}"}}').encode())
        raw("message as text", json.dumps({
            "msgtype": "m.text", "body": self.play.write(anna, "message as text")}).encode(), "text/plain")
        raw("body that is a number", b'{"msgtype":"m.text","body":1}')
        raw("number that Matrix does not allow", b'{"msgtype":"m.text","body":"x","n":1.5}')
        play.request(anna, "unknown endpoint", "GET", "/nothing")
        play.request(anna, "unknown endpoint with a text", "POST", "/nothing", json={"note": play.write(anna,
            "unknown endpoint")})
        play.request(anna, "wrong method", "DELETE", "/sync")
        play.request(anna, "admin endpoint", "GET", "/_synapse/admin/v2/users")
        play.request(anna, "report", "POST", self.room(room, "report", self.root), json={
            "reason": play.write(anna, "report reason"), "score": -100})

    def endings(self):
        play, anna, ben, carl = self.play, self.anna, self.ben, self.carl
        new = play.request(anna, "upgrade", "POST", self.room(self.open, "upgrade"), json={"new_version": "11"})
        self.say(anna, "text to an upgraded room", self.open)
        new = new.get("replacement_room", NO_ROOM)
        play.request(ben, "ben joins the new room", "POST", f"/join/{part(new)}", json={})
        self.say(ben, "text in the new room", new)
        play.request(ben, "ben leaves", "POST", self.room(self.direct, "leave"), json={})
        play.request(ben, "messages after leaving", "GET", self.room(self.direct, "messages") + "?dir=b&limit=50")
        self.say(anna, "text after ben has left", self.direct)
        self.say(ben, "text to a room that ben has left", self.direct)
        play.request(ben, "room is forgotten", "POST", self.room(self.direct, "forget"), json={})
        play.request(ben, "messages of a forgotten room", "GET", self.room(self.direct, "messages") + "?dir=b&limit=50")
        play.request(ben, "new password, unproven", "POST", "/account/password", json={"new_password": "x" * 12})
        play.request(ben, "new password", "POST", "/account/password", json={
            "new_password": PASSWORD + "-2", "logout_devices": False, "auth": {
                "type": "m.login.password", "identifier": {"type": "m.id.user", "user": "ben"}, "password": PASSWORD}})
        play.request(ben, "login with the old password", "POST", "/login", json={
            "type": "m.login.password", "password": PASSWORD, "identifier": {"type": "m.id.user", "user": "ben"}})
        play.request(anna, "mail addresses", "GET", "/account/3pid")
        play.request(anna, "guest", "POST", "/register?kind=guest", headers={}, json={})
        play.request(carl, "account goes", "POST", "/account/deactivate", json={"erase": False, "auth": {
            "type": "m.login.password", "identifier": {"type": "m.id.user", "user": "carl"}, "password": "wrong"}})
        for person in (carl, ben):
            token, person.token = person.token, None
            play.request(person, f"{person.name} logs out", "POST", "/logout", json={},
                headers={"Authorization": f"Bearer {token}"})
            play.request(person, f"{person.name} after the logout", "GET", "/account/whoami", headers={
                "Authorization": f"Bearer {token}"})
        token, anna.token = anna.token, None
        play.request(anna, "anna logs out everywhere", "POST", "/logout/all", json={},
            headers={"Authorization": f"Bearer {token}"})
        play.request(anna, "sync after the logout", "GET", "/sync", headers={"Authorization": f"Bearer {token}"})


def by_type(events):
    return sorted(events, key=lambda event: (event["type"], event["state_key"]))


def by_key(answer):
    return {"chunk": by_type(answer["chunk"])}


def only_messages(answer):
    """Without presence, receipts and state."""
    return {"messages": answer.get("messages"), "membership": answer.get("membership")}


def without_state(answer):
    """Without the state before the first message: it is another each time if messages between are left out."""
    return {name: room.get("timeline") for name, room in answer["rooms"]["join"].items()}


def without_device_lists(answer):
    """Who is in the lists depends on the order of the server's sets."""
    answer.pop("device_lists", None)
    return answer


def without_times(answer):
    """Without what changes as time passes."""
    for room in answer.get("rooms", {}).values():
        room.pop("bump_stamp", None)
    return answer


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("a", help="the address of anna and ben")
    parser.add_argument("b", help="the address of carl")
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
