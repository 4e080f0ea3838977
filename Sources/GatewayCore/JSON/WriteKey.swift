// What tells a write that is said again from a new one.

import Crypto

/// The names of one write in the queue. They tell nobody what was written or by whom, so they may stand in its file and
/// go to the backend.
package struct WriteKey: Hashable, Sendable {
    /// Made of whose it is, where it goes, what its client calls it, and what it says.
    package let common: String
    /// The same, for one credential. Many clients count their messages from one with each login: what another credential has
    /// had done is another message.
    package let own: String

    package init(common: String, own: String) { (self.common, self.own) = (common, own) }
}

/// Makes the names of writes, under a secret.
package struct WriteKeys: Sendable {
    private let secret: SymmetricKey

    /// - Parameter secret: 32 bytes, the same in every process of a gateway.
    package init(secret: [UInt8]) { self.secret = SymmetricKey(data: secret) }

    /// - Parameters:
    ///   - method: with the target, without its credential: where the write goes.
    ///   - id: what its client calls it.
    ///   - content: what it says, before it is sealed.
    func key(
        of account: AccountID, _ method: String, _ target: String, id: String, content: [UInt8],
        by credential: Credential
    ) -> WriteKey {
        let common = name(
            "write", [Array(account.text.utf8), Array(method.utf8), Array(target.utf8), Array(id.utf8), content])
        return WriteKey(
            common: common, own: name("own", [Array(common.utf8), Array(mark(of: credential).utf8)]))
    }

    /// What stands for a credential beside a write: no credential can be guessed from it.
    package func mark(of credential: Credential) -> String { name("credential", [credential.digest.bytes]) }

    /// 128 bits of HMAC-SHA-256 over the parts, each behind its length, as hexadecimal digits.
    private func name(_ kind: String, _ parts: [[UInt8]]) -> String {
        var hash = HMAC<SHA256>(key: secret)
        for part in [Array(kind.utf8)] + parts {
            withUnsafeBytes(of: UInt64(part.count).bigEndian) { hash.update(data: $0) }
            hash.update(data: part)
        }
        let digits = Array("0123456789abcdef".utf8)
        return String(
            decoding: hash.finalize().prefix(16).flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self
        )
    }
}
