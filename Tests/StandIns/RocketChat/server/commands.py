"""Slash commands. What people write behind a command becomes a message, a topic, a status or a direct message."""

from .values import MeteorError

ENDINGS = {
    "shrug": "{} ¯\\_(ツ)_/¯", "tableflip": "{} (╯°□°）╯︵ ┻━┻",
    "unflip": "{} ┬─┬ ノ( ゜-゜ノ)",
    "lennyface": "{} ( ͡° ͜ʖ ͡°)", "gimme": "༼ つ ◕_◕ ༽つ {}", "me": "_{}_",
}
DESCRIPTIONS = {
    "create": ("Create_A_New_Channel", "#channel"),
    "gimme": ("Slash_Gimme_Description", "your_message_optional"),
    "invite": ("Invite_user_to_join_channel", "@username"),
    "join": ("Join_the_given_channel", "#channel"),
    "kick": ("Remove_someone_from_room", "@username"),
    "leave": ("Leave_the_current_channel", ""),
    "lennyface": ("Slash_LennyFace_Description", "your_message_optional"),
    "me": ("Displays_action_text", "your_message"),
    "msg": ("Direct_message_someone", "@username <message>"),
    "part": ("Leave_the_current_channel", ""),
    "shrug": ("Slash_Shrug_Description", "your_message_optional"),
    "status": ("Slash_Status_Description", "Slash_Status_Params"),
    "tableflip": ("Slash_Tableflip_Description", "your_message_optional"),
    "topic": ("Slash_Topic_Description", "Slash_Topic_Params"),
    "unflip": ("Slash_TableUnflip_Description", "your_message_optional"),
}


class Commands:
    def __init__(self, world):
        self.world = world

    def list(self):
        return [self.describe(name) for name in sorted(DESCRIPTIONS)]

    def describe(self, name):
        description, parameters = DESCRIPTIONS[name]
        return {"command": name, "description": description, "params": parameters, "clientOnly": False,
                "providesPreview": False}

    def run(self, user, name, parameters, rid, tmid=None, identifier=None):
        name = name.lower()
        if name not in DESCRIPTIONS:
            raise MeteorError("invalid-command", "Invalid Command Provided", {"method": "slashCommand"})
        if name in ENDINGS:
            message = {"rid": rid, "msg": ENDINGS[name].format(parameters).strip(), "tmid": tmid, "_id": identifier}
            if name != "me" or parameters.strip():
                self.world.messages.execute_send(user, message)
            return
        room = self.world.rooms.get(rid)
        getattr(self, f"run_{name}")(user, room, parameters.strip())

    def run_topic(self, user, room, text):
        self.world.rooms.save(room, user, "roomTopic", text)

    def run_status(self, user, room, text):
        self.world.people.set_status(user, text=text)
        self.world.messages.ephemeral(user, room["_id"], "Status message changed successfully.")

    def run_msg(self, user, room, text):
        name, _, rest = text.partition(" ")
        other = self.world.people.named(name.lstrip("@"))
        if not rest:
            self.world.messages.ephemeral(user, room["_id"], "Username and message must not be empty.")
        elif not other:
            self.world.messages.ephemeral(user, room["_id"], f"User *{name.lstrip('@')}* doesn't exist.")
        else:
            direct = self.world.rooms.create_direct([user, other])
            self.world.messages.execute_send(user, {"rid": direct["_id"], "msg": rest})

    def run_invite(self, user, room, text):
        other = self.world.people.named(text.lstrip("@#"))
        if not other:
            self.world.messages.ephemeral(user, room["_id"], f"No user with username *{text.lstrip('@#')}* was found!")
        else:
            self.world.rooms.invite(room, user, [other])

    def run_kick(self, user, room, text):
        other = self.world.people.named(text.lstrip("@"))
        if not other:
            self.world.messages.ephemeral(user, room["_id"], f"No user with username *{text.lstrip('@')}* was found!")
        else:
            self.world.rooms.kick(room, user, other)

    def run_join(self, user, room, text):
        wanted = self.world.rooms.named(text.lstrip("#"))
        if not wanted:
            self.world.messages.ephemeral(user, room["_id"], f"Channel *#{text.lstrip('#')}* does not exist.")
        else:
            self.world.rooms.join(wanted, user)

    def run_create(self, user, room, text):
        self.world.rooms.create("c", text.lstrip("#"), user)

    def run_leave(self, user, room, text):
        self.world.rooms.leave(room, user)

    run_part = run_leave
