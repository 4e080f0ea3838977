// Distinguishes a repeated write from a new one.
//
// The name is a keyed digest of account, target, client id and text. Clients count their messages from one, on each
// device and with each login. So another text is another write, and so is the same text under another credential once
// the first write is done. The backend receives the name as the idempotency key.

import Crypto
package import Protection
import RequestQueue

/// The name of a write in the queue.
///
/// It reveals neither content nor author, so the store may hold it, and the backend may receive it.
package struct WriteKey: Hashable, Sendable {
    let token: RequestToken
    /// Thirty-two hexadecimal digits.
    package var name: String { token.description }
}

/// Creates the names of writes, keyed by a secret.
package struct WriteKeys: Sendable {
    /// The initial hash state, with the key absorbed.
    private let beginning: HMAC<SHA256>

    /// - Parameter secret: 32 bytes, the same in every process of a gateway.
    package init(secret: [UInt8]) { beginning = HMAC<SHA256>(key: SymmetricKey(data: secret)) }

    /// The name of a write, from its account, method, target, client id and content.
    ///
    /// - Parameters:
    ///   - target: the target without the credential.
    ///   - id: the client's id of the message.
    ///   - content: the content before it is sealed.
    package func key(
        of account: AccountID, _ method: String, _ target: String, id: String, content: [UInt8]
    ) -> WriteKey {
        WriteKey(
            token: token(
                "write", [Array(account.text.utf8), Array(method.utf8), Array(target.utf8), Array(id.utf8), content]))
    }

    /// The name of a write for one credential.
    ///
    /// Many clients count their messages from one with each login, so a finished write of another credential is another
    /// message.
    ///
    /// - Parameter mark: the mark of the credential; see ``mark(of:)``.
    package func own(_ key: WriteKey, mark: String) -> WriteKey {
        WriteKey(token: token("own", [Array(key.name.utf8), Array(mark.utf8)]))
    }

    /// The mark of a credential stored with a write. The credential cannot be derived from it.
    package func mark(of credential: Credential) -> String {
        token("credential", [credential.digest.bytes]).description
    }

    /// 128 bits of HMAC-SHA-256 over the parts, each prefixed by its length.
    private func token(_ kind: String, _ parts: [[UInt8]]) -> RequestToken {
        var hash = beginning
        for part in [Array(kind.utf8)] + parts {
            withUnsafeBytes(of: UInt64(part.count).bigEndian) { hash.update(data: $0) }
            hash.update(data: part)
        }
        return hash.finalize().withUnsafeBytes { bytes in
            RequestToken(
                high: UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)),
                low: UInt64(bigEndian: bytes.loadUnaligned(fromByteOffset: 8, as: UInt64.self)))
        }
    }
}
