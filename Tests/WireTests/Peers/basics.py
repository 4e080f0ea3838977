"""Numbers, signatures and key derivation, as Sources/WIRE.md has them."""

import hashlib
import hmac

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCMSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

ZERO_NONCE = bytes(12)
FIELD_PRIME = 2**255 - 19


class Refused(Exception):
    """Bytes that the page does not allow, or that are not authentic."""


def require(condition, reason):
    if not condition:
        raise Refused(reason)


class Reader:
    """Reads the fields of a form one after the other."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def bytes(self, count):
        require(self.at + count <= len(self.data), "truncated")
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, size):
        return int.from_bytes(self.bytes(size), "big")

    def prefixed(self, size=2):
        return self.bytes(self.number(size))

    def varint(self):
        """LEB128 in its shortest form, at most five bytes."""
        value = 0
        for index in range(5):
            byte = self.number(1)
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                require(byte != 0 or index == 0, "varint is not the shortest")
                require(value < 2**32, "varint is too large")
                return value
        raise Refused("varint is too long")

    def rest(self):
        return self.bytes(len(self.data) - self.at)

    @property
    def remaining(self):
        return len(self.data) - self.at

    def end(self):
        require(self.remaining == 0, "bytes after the end")


def number(value, size):
    return value.to_bytes(size, "big")


def prefixed(data, size=2):
    return number(len(data), size) + data


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def sha256(data):
    return hashlib.sha256(data).digest()


def mac(key, data):
    return hmac.new(key, data, hashlib.sha256).digest()


def hkdf(salt, secret, info, keys):
    """`keys` keys of 32 bytes."""
    out = HKDF(SHA256(), 32 * keys, salt, info).derive(secret)
    return [out[32 * index:32 * index + 32] for index in range(keys)]


def seal(key, data, associated, nonce=ZERO_NONCE):
    return AESGCMSIV(key).encrypt(nonce, data, associated)


def open_sealed(key, data, associated, nonce=ZERO_NONCE):
    require(len(data) >= 16, "truncated")
    return AESGCMSIV(key).decrypt(nonce, data, associated)


def signed_text(context, data):
    return b"DoubleRatchet/1 " + context.encode() + b"\0" + data


def verify(identity, signature, context, data):
    verify_plain(identity, signature, signed_text(context, data))


def verify_plain(key, signature, data):
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, data)
    except InvalidSignature:
        raise Refused("signature") from None


def montgomery(identity):
    """The X25519 key of an Ed25519 key (RFC 7748, section 4.1)."""
    y = int.from_bytes(identity, "little") & (2**255 - 1)
    u = (1 + y) * pow(1 - y, -1, FIELD_PRIME) % FIELD_PRIME
    return u.to_bytes(32, "little")


def agree(private, public):
    return private.exchange(X25519PublicKey.from_public_bytes(public))


class Identity:
    """An Ed25519 key, which agrees as an X25519 key too."""

    def __init__(self, seed):
        self.signing = Ed25519PrivateKey.from_private_bytes(seed)
        self.public = self.signing.public_key().public_bytes_raw()
        self.agreement = X25519PrivateKey.from_private_bytes(hashlib.sha512(seed).digest()[:32])

    def sign(self, context, data):
        return self.signing.sign(signed_text(context, data))
