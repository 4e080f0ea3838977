"""The forms of Sources/WIRE.md, written from that page alone: makes and opens them, driven by lines.

A line is the name of a method of Peer and its arguments; the answer is a line of words. Bytes and texts are in
hexadecimal digits ("-" for none), numbers in decimal digits, and a place is its fields with commas between them. A line
"error REASON" answers what is refused. Sessions, devices and sender keys have names, which the caller chooses.
"""

import inspect
import sys

from cryptography.exceptions import InvalidTag

import direct
import envelope
import messenger
from basics import Refused, number, open_sealed, require, seal, sha256
from envelope import DeviceList, Place, SenderKey
from ratchet import Bundle, Prekeys, Sessions


class Peer:
    def __init__(self):
        self.devices, self.sessions, self.keys, self.connections = {}, {}, {}, {}

    # Devices and sessions

    def device(self, name: str):
        self.devices[name] = Prekeys()
        return [self.devices[name].identity.public]

    def older_device(self, name: str):
        """A device that knows version 2 of the ratchet messages only."""
        self.devices[name] = Prekeys(reads_padded=False)
        return [self.devices[name].identity.public]

    def bundle(self, name: str, one_time: int):
        return [self.devices[name].bundle(bool(one_time))]

    def bundle_read(self, data: bytes):
        bundle = Bundle(data)
        return [bundle.identity, bundle.signed_id, bundle.kem_id, bundle.one_time[0] if bundle.one_time else "-"]

    def initiate(self, session: str, name: str, bundle: bytes):
        self.session(session, name).begin(Bundle(bundle))
        return [self.sessions[session].current.remote_identity]

    def session(self, name, device):
        """The sessions of this name; the first message may begin one."""
        return self.sessions.setdefault(name, Sessions(self.devices[device]))

    def encrypt(self, session: str, associated: bytes, text: bytes):
        return [self.sessions[session].encrypt(text, associated)]

    def decrypt(self, session: str, device: str, associated: bytes, message: bytes):
        return [self.session(session, device).decrypt(message, associated)]

    def session_id(self, session: str):
        return [self.sessions[session].current.identifier]

    def progress(self, session: str):
        """The braid's epoch, and what the last message's chunk belonged to."""
        current = self.sessions[session].current
        return [current.post_quantum.braid.epoch, current.last_kind]

    # Envelopes

    def direct_seal(self, session: str, place: Place, sender: int, message: int, body: bytes):
        return [envelope.seal_direct(self.sessions[session], place, sender, message, body)]

    def direct_open(self, session: str, device: str, place: Place, data: bytes):
        return [envelope.open_direct(self.session(session, device), place, data)]

    def several_seal(self, place: Place, sender: int, message: int, body: bytes, *readers: str):
        """Each reader is DEVICE=SESSION."""
        pairs = [reader.split("=") for reader in readers]
        sessions = [(int(device), self.sessions[session]) for device, session in pairs]
        return [envelope.seal_several(sessions, place, sender, message, body)]

    def several_open(self, session: str, device: str, place: Place, data: bytes):
        return [envelope.open_several(self.session(session, device), place, data)]

    def pad(self, plaintext: bytes):
        return [envelope.padded(plaintext)]

    def unpad(self, body: bytes):
        return [envelope.unpadded(body)]

    def sender_key(self, name: str):
        self.keys[name] = SenderKey.make()
        return [self.keys[name].distribution]

    def sender_key_distribution(self, name: str):
        return [self.keys[name].distribution]

    def sender_key_read(self, name: str, distribution: bytes):
        self.keys[name] = SenderKey.read(distribution)
        return [self.keys[name].key_id, self.keys[name].chain.number]

    def room_seal(self, name: str, place: Place, sender: int, message: int, body: bytes):
        return [envelope.seal_room(self.keys[name], place, sender, message, body)]

    def room_open(self, name: str, place: Place, data: bytes):
        return [envelope.open_room(self.keys[name], place, data)]

    # Device lists and introductions

    def list_make(self, name: str, device: int):
        identity = self.devices[name].identity
        return [DeviceList([]).adding([(device, identity.public)], device, identity).data]

    def list_add(self, data: bytes, device: int, key: bytes, signer: int, name: str):
        old = DeviceList.read(data)
        return [old.adding(old.devices + [(device, key)], signer, self.devices[name].identity).data]

    def list_remove(self, data: bytes, device: int, signer: int, name: str):
        old = DeviceList.read(data)
        left = [entry for entry in old.devices if entry[0] != device]
        return [old.adding(left, signer, self.devices[name].identity).data]

    def list_read(self, data: bytes):
        """The number of versions, then the devices of the last one."""
        read = DeviceList.read(data)
        return [len(read.versions)] + [word for entry in read.devices for word in entry]

    def introduction_make(self, name: str, device: int, message: int, time: int, device_list: bytes):
        own = self.devices[name]
        bundle = own.bundle(True)
        return [envelope.make_introduction(own.identity, device, message, time, device_list, bundle)]

    def introduction_read(self, data: bytes):
        return envelope.read_introduction(data)

    # Bodies

    def body_make(self, kind: int, tags: bytes, text: bytes, length: int):
        return [envelope.make_body(kind, tags, text, length)]

    def body_read(self, body: bytes):
        return envelope.read_body(body)

    def control_make(self, kind: int, content: bytes):
        return [envelope.make_body(envelope.CONTROL, b"", number(kind, 1) + content, 0)]

    def control_read(self, body: bytes):
        return envelope.read_control(body)

    def control_sender_key_make(self, room: bytes, distribution: bytes, *ended: int):
        return [envelope.make_sender_key_message(room, distribution, ended)]

    def control_sender_key_read(self, body: bytes):
        return envelope.read_sender_key_message(body)

    def room_request_make(self, name: str, device: int, act: int, counter: int, room: bytes, network: bytes):
        identity = self.devices[name].identity
        return [envelope.make_room_request(identity, device, act, counter, room, network)]

    def room_request_read(self, data: bytes, identity: bytes, device: int):
        return envelope.read_room_request(data, identity, device)

    # Text forms

    def armour(self, data: bytes):
        return [envelope.armour(data).encode()]

    def fragments(self, data: bytes, identifier: int, count: int):
        return [line.encode() for line in envelope.fragments(data, identifier, count)]

    def unarmour(self, *lines: bytes):
        return [envelope.unarmour([line.decode() for line in lines])]

    # Control plane

    def control_lines(self, identifier: str, message: bytes):
        return [line.encode() for line in envelope.control_lines(identifier, message)]

    def control_joined(self, *lines: bytes):
        return envelope.join_control_lines([line.decode() for line in lines])

    def publish_make(self, name: str, device: int, nonce: bytes, account: bytes, device_list: bytes, one_time: int):
        own = self.devices[name]
        prekeys = b"".join(own.one_time_prekey() for _ in range(one_time))
        entry = envelope.make_device(device, own.bundle(False), prekeys)
        return [envelope.publish_message(own.identity, nonce, account, device_list, entry)]

    def publish_read(self, message: bytes, nonce: bytes, account: bytes):
        return envelope.read_publish(message, nonce, account)

    def found_make(self, account: bytes, device_list: bytes, *devices: bytes):
        return [envelope.make_found(account, device_list, devices)]

    def found_read(self, message: bytes):
        kind, account, device_list, devices = envelope.read_found(message)
        return [kind, account, device_list] + devices

    def device_read(self, data: bytes):
        device, bundle, prekeys = envelope.read_device(data)
        Bundle(bundle)
        return [device, bundle] + prekeys

    def control_plane_make(self, kind: int, *contents: str):
        return [number(kind, 1) + envelope.control_plane_content(kind, contents)]

    def control_plane_read(self, message: bytes):
        return envelope.read_control_plane(message)

    # Stored content keys

    def content_key_seal(self, key: bytes, content: bytes, message: int, data: bytes, expiry: int, conversation: bytes):
        place = envelope.content_key_place(message, sha256(data), expiry, conversation)
        nonce = sha256(data)[:12]
        return [nonce + seal(key, content, place, nonce)]

    def content_key_open(self, key: bytes, sealed: bytes, message: int, data: bytes, expiry: int, conversation: bytes):
        place = envelope.content_key_place(message, sha256(data), expiry, conversation)
        return [open_sealed(key, sealed[12:], place, sealed[:12])]

    # Messengers

    def file_seal(self, data: bytes, key: bytes):
        """The digest, then the parts."""
        chunks = messenger.seal_file(data, key)
        return [sha256(b"".join(chunks))] + messenger.parts(chunks)

    def file_open(self, size: int, digest: bytes, key: bytes, *parts: bytes):
        return [messenger.open_file(size, digest, key, parts)]

    def file_reference_make(self, size: int, digest: bytes, key: bytes, name: bytes, kind: bytes, *blobs: bytes):
        return [messenger.make_file_reference(size, digest, key, name, kind, blobs).encode()]

    def file_reference_read(self, text: bytes):
        *fields, blobs = messenger.read_file_reference(text.decode())
        return fields + blobs

    def content_make(self, text: bytes, *tags: bytes):
        return [messenger.make_content(text, [tag.decode() for tag in tags])]

    def content_read(self, body: bytes):
        """Whether people see the text, the text, then the tags, sorted."""
        return messenger.read_content(body)

    def signal_parts(self, identifier: int, kind: bytes, text: bytes):
        return [part.encode() for part in messenger.signal_parts(identifier, kind.decode(), text.decode())]

    def signal_joined(self, *parts: bytes):
        return [word.encode() for word in messenger.join_signal([part.decode() for part in parts])]

    def history_question(self, place: bytes):
        return [messenger.make_history_question(place).encode()]

    def history_place(self, stage: int, before: int, offset: int, mark: int, count: int, name: bytes):
        return [messenger.make_place(stage, before, offset, mark, count, name)]

    def history_part(self, place: bytes, following: bytes, kind: int, at: int, offset: int, total: int, data: bytes):
        return [messenger.make_history_part(place, following, [(kind, at, offset, total, data)]).encode()]

    def history_read(self, text: bytes):
        form, place, following, items = messenger.read_history(text.decode())
        return [form, place, following] + [word for item in items for word in item]

    def group_version(
        self, name: str, before: bytes, title: bytes, own: bytes, signer: bytes, device: int, *members: str
    ):
        """A version and its digest; each member is ROLE=NAME."""
        pairs = [member.split("=") for member in members]
        members = [(int(role), bytes.fromhex(account)) for role, account in pairs]
        version = messenger.make_group_version(
            self.devices[name].identity, before, title, own, members, signer, device)
        return [version, sha256(before + version)]

    def group_seal(self, key: bytes, *versions: bytes):
        return [messenger.seal_group(key, b"\x01" + number(len(versions), 1) + b"".join(versions))]

    def group_open(self, key: bytes, sealed: bytes, digest: bytes, *identities: str):
        """Each identity is DEVICE=KEY. Answers with the digests, then the last name, own data and members."""
        keys = {int(device): bytes.fromhex(key) for device, key in (pair.split("=") for pair in identities)}
        versions, digests = messenger.read_group(messenger.open_group(key, sealed), keys)
        require(digests[-1] == digest, "another version")
        last = versions[-1]
        return [len(digests), *digests, last.name, last.own] + [word for member in last.members for word in member]

    def group_tag_make(self, group: bytes, digest: bytes, key: bytes, blob: bytes):
        return [messenger.make_group_tag(group, digest, key, blob).encode()]

    def group_tag_read(self, text: bytes):
        return messenger.read_group_tag(text.decode())

    def keys_make(self, name: str, device: int, account: bytes, device_list: bytes):
        own = self.devices[name]
        root = DeviceList.read(device_list).root
        entry = messenger.key_entry(own.identity, device, own.bundle(False), account, root)
        return [messenger.make_published_keys(device_list, [entry])]

    def keys_read(self, data: bytes, account: bytes):
        device_list, entries = messenger.read_published_keys(data, account)
        return [device_list] + [word for entry in entries for word in entry]

    def addition_make(self, name: str, device: int, account: bytes, root: bytes):
        own = self.devices[name]
        return [messenger.make_addition(root, messenger.key_entry(
            own.identity, device, own.bundle(False), account, root))]

    def addition_read(self, data: bytes, account: bytes):
        return messenger.read_addition(data, account)

    def frame_make(self, kind: int, device: int, message: int, content: bytes):
        return [messenger.make_frame(kind, device, message, content)]

    def frame_read(self, frame: bytes):
        return messenger.read_frame(frame)

    def card_make(self, name: bytes, key: bytes):
        return [messenger.make_card(name, key).encode()]

    def card_read(self, uri: bytes):
        return messenger.read_card(uri.decode())

    def card_file_make(self, name: bytes, key: bytes, keys: bytes):
        return [messenger.make_card_file(name, key, keys)]

    def card_file_read(self, data: bytes):
        return messenger.read_card_file(data)

    def safety_number(self, own: bytes, other: bytes):
        """The number in words, and the code to scan."""
        prints = sorted([messenger.fingerprint(own, own), messenger.fingerprint(other, other)])
        return [messenger.safety_number(*prints).encode(), b"\x01" + b"".join(prints)]

    # Direct connections

    def connection(
        self, name: str, initiates: int, device: str, own: int, other: int, key: bytes, identifier: bytes,
        secret: bytes, transport: bytes
    ):
        identity = self.devices[device].identity
        self.connections[name] = direct.Connection(
            bool(initiates), (own, identity), (other, key), identifier, secret, transport)
        return [self.connections[name].hello()] if initiates else []

    def connection_hello(self, name: str, packet: bytes):
        return [self.connections[name].receive_hello(packet)]

    def connection_answer(self, name: str, packet: bytes):
        return [self.connections[name].receive_answer(packet)]

    def connection_finish(self, name: str, packet: bytes):
        self.connections[name].receive_finish(packet)
        return []

    def connection_seal(self, name: str, kind: int, value: int, content: bytes):
        return [self.connections[name].seal(direct.make_frame(kind, value, content))]

    def connection_open(self, name: str, packet: bytes):
        return self.connections[name].open(packet)

    def magic_make(
        self, connection: bytes, secret: bytes, transport: bytes, text: bytes, metadata: bytes, instead: bytes
    ):
        return [direct.make_magic_packet(connection, secret, transport, text, metadata, instead).encode()]

    def magic_refusal(self, connection: bytes, transport: bytes):
        return [direct.make_refusal(connection, transport).encode()]

    def magic_read(self, text: bytes):
        return direct.read_magic_packet(text.decode())

    # Calls

    def call_make(self, kind: str, *fields: bytes):
        return [messenger.make_call_signal(kind, [field.decode() for field in fields]).encode()]

    def call_read(self, text: bytes):
        kind, *fields = messenger.read_call_signal(text.decode())
        return [kind] + [field.encode() for field in fields]


def place(word):
    fields = word.split(",")
    texts = [bytes.fromhex(field) for field in fields[1:5]]
    return Place(int(fields[0]), *texts, int(fields[5]))


DECODERS = {str: str, int: int, bytes: lambda word: b"" if word == "-" else bytes.fromhex(word), Place: place}


def call(peer, command, words):
    method = getattr(peer, command)
    parameters = list(inspect.signature(method).parameters.values())
    while parameters and parameters[-1].kind is inspect.Parameter.VAR_POSITIONAL and len(parameters) < len(words):
        parameters.append(parameters[-1])
    return method(*(DECODERS[parameter.annotation](word) for parameter, word in zip(parameters, words)))


def encoded(word):
    return (word.hex() or "-") if isinstance(word, bytes) else str(word)


def main():
    peer = Peer()
    for line in sys.stdin:
        command, *words = line.split()
        try:
            answer = ["ok", *map(encoded, call(peer, command, words))]
        except (Refused, InvalidTag, ValueError) as error:
            answer = ["error", type(error).__name__, *str(error).split()]
        print(*answer, flush=True)


main()
