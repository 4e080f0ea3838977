// The calls of the control plane over HTTP: which there are, and how they are told apart. Its paths are the gateway's own and
// reach no backend.

import HTTPCodec
package import Protection

/// One kind of call. The table is closed: what is not in it is answered with 404.
package enum ControlRoute: Equatable, Sendable {
    /// `POST challenge`: what the next proof is made over.
    case challenge
    /// `GET me`: the account, and the device that this credential has proven.
    case me
    /// `PUT device`: proves the device of this credential and publishes its keys.
    case publish
    /// `GET accounts/{account}/devices`: the list of somebody's devices; no prekey is used up.
    case devices(AccountID)
    /// `POST accounts/{account}/bundles`: keys to begin sessions with.
    case bundles(AccountID)
    /// `PUT keys`: more one-time prekeys.
    case replenish
    /// `PUT list`: a later version of the account's own list, with a device more or one less.
    case list
    /// `POST messages`: one message for one or many devices.
    case post
    /// `GET messages?after=N`: what waits for the device.
    case fetch
    /// `PUT messages/acknowledged`: what the device has.
    case acknowledge
    /// `POST receipts`.
    case receipt
    /// `POST blobs`.
    case publishBlob
    /// `GET blobs/{id}`.
    case blob(String)
    /// `DELETE blobs/{id}`.
    case removeBlob(String)
    /// `POST registrations`: a device asks to be taken into the account's list.
    case register

    package static let prefix = "/_pawl/"
    private static let version = "v1"
    /// All methods that calls have.
    package static let methods = ["GET", "POST", "PUT", "DELETE"]

    /// Whether a path is the gateway's own: as it stands, or as a backend could read it that decodes it, takes backslashes for
    /// slashes, leaves out empty segments and parameters (RFC 3986 section 3.3), and follows dots.
    package static func isReserved(_ path: Substring) -> Bool {
        var depth = 0
        for segment in PercentCoding.lenient(path.utf8).split(whereSeparator: { $0 == 0x2F || $0 == 0x5C }) {
            let name = segment.prefix { $0 != UInt8(ascii: ";") }
            if name.elementsEqual("..".utf8) {
                depth = max(0, depth - 1)
            } else if !name.isEmpty, !name.elementsEqual(".".utf8) {
                if depth == 0, name.elementsEqual("_pawl".utf8) { return true }
                depth += 1
            }
        }
        return false
    }

    /// - Returns: nothing where there is no such call.
    package init?(_ method: String, _ path: Substring) {
        guard let segments = RequestPath(path)?.segments, segments.count > 2, segments[0] == "_pawl",
            segments[1] == Self.version
        else { return nil }
        let call = Array(segments[2...])
        switch (method, call.count, call[0], call.last) {
        case ("POST", 1, "challenge", _): self = .challenge
        case ("GET", 1, "me", _): self = .me
        case ("PUT", 1, "device", _): self = .publish
        case ("PUT", 1, "keys", _): self = .replenish
        case ("PUT", 1, "list", _): self = .list
        case ("POST", 1, "messages", _): self = .post
        case ("GET", 1, "messages", _): self = .fetch
        case ("PUT", 2, "messages", "acknowledged"): self = .acknowledge
        case ("POST", 1, "receipts", _): self = .receipt
        case ("POST", 1, "registrations", _): self = .register
        case ("POST", 1, "blobs", _): self = .publishBlob
        case ("GET", 2, "blobs", let id?): self = .blob(id)
        case ("DELETE", 2, "blobs", let id?): self = .removeBlob(id)
        case ("GET", 3, "accounts", "devices"):
            guard let account = Self.account(call[1]) else { return nil }
            self = .devices(account)
        case ("POST", 3, "accounts", "bundles"):
            guard let account = Self.account(call[1]) else { return nil }
            self = .bundles(account)
        default: return nil
        }
    }

    package static func account(_ name: String) -> AccountID? {
        FoundMessage.isUsable(name) ? .services(name) : nil
    }
}
