"""One OMEMO device made of python-twomemo or python-oldmemo, driven by lines.

usage: omemo_python.py twomemo|oldmemo SEED

SEED is the identity's Ed25519 seed. Every argument and answer is base64 ("-" for nothing) except numbers. A line
"error NAME" answers what the library refused.

  bundle                                          -> IK SPKID SPK SIGNATURE {ID PK}
  initiate IK SPKID SPK SIGNATURE PKID PK TEXT    -> 1 MESSAGE
  encrypt TEXT                                    -> KEX MESSAGE
  decrypt KEX MESSAGE                             -> TEXT
  restart                                         -> ok        (the session is stored and loaded)
  seal TEXT                                       -> CIPHERTEXT IV KEYMATERIAL
  open CIPHERTEXT IV KEYMATERIAL                  -> TEXT
"""

import asyncio
import base64
import sys

import oldmemo
import oldmemo.oldmemo
import omemo.storage
import twomemo
import twomemo.twomemo
import x3dh
import xeddsa
from omemo.session import Initiation

JID, DEVICE = "peer@example.org", 1


class Memory(omemo.storage.Storage):
    """A storage that keeps everything in a dictionary."""

    def __init__(self):
        super().__init__(disable_cache=True)
        self.values = {}

    async def _load(self, key):
        return omemo.storage.Just(self.values[key]) if key in self.values else omemo.storage.Nothing()

    async def _store(self, key, value):
        self.values[key] = value

    async def _delete(self, key):
        self.values.pop(key, None)


class Twomemo:
    """The wire forms of urn:xmpp:omemo:2: what the library uses inside."""

    module = twomemo.twomemo
    backend = module.Twomemo

    def key_out(self, key):
        return key

    def key_in(self, key):
        return key

    def identity_out(self, key):
        return key

    def signed_out(self, identity, signature):
        return signature

    def signed_in(self, identity, signature):
        return identity, signature

    def exchange_out(self, exchange, message):
        return exchange.serialize(message)

    def exchange_in(self, message, sign):
        return self.module.KeyExchangeImpl.parse(message)

    def content(self, ciphertext, iv):
        return self.module.ContentImpl(ciphertext)

    def iv(self, content):
        return b""


class Oldmemo:
    """The wire forms of eu.siacs.conversations.axolotl: Curve25519 identities, the sign in the signature."""

    module = oldmemo.oldmemo
    backend = module.Oldmemo

    def key_out(self, key):
        return self.module.StateImpl.serialize_public_key(key)

    def key_in(self, key):
        return self.module.StateImpl.parse_public_key(key)

    def identity_out(self, key):
        return self.key_out(xeddsa.ed25519_pub_to_curve25519_pub(key))

    def signed_out(self, identity, signature):
        return signature[:63] + bytes([signature[63] | identity[31] & 0x80])

    def signed_in(self, identity, signature):
        sign = bool(signature[63] & 0x80)
        key = xeddsa.curve25519_pub_to_ed25519_pub(self.key_in(identity), sign)
        return key, signature[:63] + bytes([signature[63] & 0x7F])

    def exchange_out(self, exchange, message):
        return exchange.serialize(message)[0]

    def exchange_in(self, message, sign):
        return self.module.KeyExchangeImpl.parse(message, sign)

    def content(self, ciphertext, iv):
        return self.module.ContentImpl(ciphertext, iv)

    def iv(self, content):
        return content.initialization_vector


class Device:
    """One device with at most one session."""

    def __init__(self, wire, storage):
        self.wire = wire
        self.backend = wire.backend(storage)
        self.session = None

    def material(self, text):
        length = self.wire.module.PlainKeyMaterialImpl.KEY_LENGTH
        return self.wire.module.PlainKeyMaterialImpl(text[:length], text[length:])

    def answer(self, encrypted):
        message = encrypted.serialize()
        pending = self.session.initiation is Initiation.ACTIVE and not self.session.confirmed
        if pending:
            message = self.wire.exchange_out(self.session.key_exchange, message)
        return [int(pending), message]

    async def bundle(self):
        if await self.backend.get_num_visible_pre_keys() < 100:
            await self.backend.generate_pre_keys(100 - await self.backend.get_num_visible_pre_keys())
        published = await self.backend.get_bundle(JID, DEVICE)
        keys = published.bundle
        words = [
            self.wire.identity_out(keys.identity_key), published.signed_pre_key_id,
            self.wire.key_out(keys.signed_pre_key),
            self.wire.signed_out(keys.identity_key, keys.signed_pre_key_sig),
        ]
        for key in keys.pre_keys:
            words += [published.pre_key_ids[key], self.wire.key_out(key)]
        return words

    async def initiate(self, identity, signed_id, signed, signature, key_id, key, text):
        identity, signature = self.wire.signed_in(identity, signature)
        key = self.wire.key_in(key)
        bundle = self.wire.module.BundleImpl(
            JID, DEVICE, x3dh.Bundle(identity, self.wire.key_in(signed), signature, frozenset([key])),
            int(signed_id), {key: int(key_id)})
        self.session, encrypted = await self.backend.build_session_active(JID, DEVICE, bundle, self.material(text))
        return self.answer(encrypted)

    async def encrypt(self, text):
        return self.answer(await self.backend.encrypt_key_material(self.session, self.material(text)))

    async def decrypt(self, is_exchange, message):
        exchange = None
        if int(is_exchange):
            # The sign of an identity that came as Curve25519 is taken from its bundle; either serves the agreement.
            exchange, message = self.wire.exchange_in(message, False)
        encrypted = self.wire.module.EncryptedKeyMaterialImpl.parse(message, JID, DEVICE)
        if exchange is None or self.is_same(exchange):
            plain = await self.backend.decrypt_key_material(self.session, encrypted)
        else:
            session, plain = await self.backend.build_session_passive(JID, DEVICE, exchange, encrypted)
            self.session = session
            await self.backend.delete_pre_key(session)
        return [plain.key + plain.auth_tag]

    def is_same(self, exchange):
        return (
            self.session is not None and self.session.initiation is Initiation.PASSIVE
            and self.session.key_exchange.builds_same_session(exchange))

    async def restart(self):
        await self.backend.store_session(self.session)
        self.session = await self.backend.load_session(JID, DEVICE)
        return ["ok"]

    async def seal(self, text):
        content, plain = await self.backend.encrypt_plaintext(text)
        return [content.ciphertext, self.wire.iv(content), plain.key + plain.auth_tag]

    async def open(self, ciphertext, iv, material):
        return [await self.backend.decrypt_plaintext(self.wire.content(ciphertext, iv), self.material(material))]


NUMBERS = {"initiate": {1, 4}, "decrypt": {0}}


def decoded(command, index, word):
    if index in NUMBERS.get(command, ()):
        return word
    return b"" if word == "-" else base64.b64decode(word)


def encoded(word):
    if isinstance(word, bytes):
        return base64.b64encode(word).decode() or "-"
    return str(word)


async def main():
    wire = {"twomemo": Twomemo, "oldmemo": Oldmemo}[sys.argv[1]]()
    storage = Memory()
    await storage.store("/ikp/is_seed", True)
    await storage.store_bytes("/ikp/key", base64.b64decode(sys.argv[2]))
    device = Device(wire, storage)
    for line in sys.stdin:
        command, *words = line.split()
        try:
            arguments = [decoded(command, index, word) for index, word in enumerate(words)]
            answer = await getattr(device, command)(*arguments)
        except Exception as error:  # whatever the library refused with is the answer
            answer = ["error", type(error.__cause__ or error).__name__]
        print(*map(encoded, answer), flush=True)


asyncio.run(main())
