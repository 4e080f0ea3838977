// What tells a write that is said again from a new one.

import Crypto
package import Protection

/// What a write is called in the queue. It tells nobody what was written or by whom, so it may stand in the queue's file and go
/// to the backend.
package struct WriteKey: Hashable, Sendable {
    package let name: String
}

/// Makes the names of writes, under a secret.
package struct WriteKeys: Sendable {
    /// The hash at its beginning, where the key is in it.
    private let beginning: HMAC<SHA256>

    /// - Parameter secret: 32 bytes, the same in every process of a gateway.
    package init(secret: [UInt8]) { beginning = HMAC<SHA256>(key: SymmetricKey(data: secret)) }

    /// Made of whose the write is, where it goes, what its client calls it, and what it says.
    ///
    /// - Parameters:
    ///   - method: with the target, without its credential: where the write goes.
    ///   - id: what its client calls it.
    ///   - content: what it says, before it is sealed.
    package func key(
        of account: AccountID, _ method: String, _ target: String, id: String, content: [UInt8]
    ) -> WriteKey {
        WriteKey(
            name: name(
                "write", [Array(account.text.utf8), Array(method.utf8), Array(target.utf8), Array(id.utf8), content]))
    }

    /// The same for one credential. Many clients count their messages from one with each login: what another credential has had
    /// done is another message.
    ///
    /// - Parameter mark: what stands for the credential.
    package func own(_ key: WriteKey, mark: String) -> WriteKey {
        WriteKey(name: name("own", [Array(key.name.utf8), Array(mark.utf8)]))
    }

    /// What stands for a credential beside a write: no credential can be guessed from it.
    package func mark(of credential: Credential) -> String { name("credential", [credential.digest.bytes]) }

    /// 128 bits of HMAC-SHA-256 over the parts, each behind its length, as hexadecimal digits.
    private func name(_ kind: String, _ parts: [[UInt8]]) -> String {
        var hash = beginning
        for part in [Array(kind.utf8)] + parts {
            withUnsafeBytes(of: UInt64(part.count).bigEndian) { hash.update(data: $0) }
            hash.update(data: part)
        }
        return hash.finalize().withUnsafeBytes { bytes in
            String(unsafeUninitializedCapacity: 32) { text in
                for (index, byte) in bytes.prefix(16).enumerated() {
                    text[2 * index] = Self.digit(byte >> 4)
                    text[2 * index + 1] = Self.digit(byte & 15)
                }
                return 32
            }
        }
    }

    private static func digit(_ value: UInt8) -> UInt8 {
        value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "a") + value - 10
    }
}
