// The calls of the control plane over HTTP. Their paths belong to the gateway and never reach the backend.

import HTTPCodec
package import Protection

/// One kind of call. Requests of any other kind are answered with 404.
package enum ControlRoute: Equatable, Sendable {
    /// `POST challenge`: requests the challenge for the next proof.
    case challenge
    /// `GET me`: the account, and the device that this credential has proven.
    case me
    /// `PUT device`: proves the device of this credential and publishes its keys.
    case publish
    /// `GET accounts/{account}/devices`: the device list of an account. Consumes no prekey.
    case devices(AccountID)
    /// `POST accounts/{account}/bundles`: key bundles to begin sessions.
    case bundles(AccountID)
    /// `PUT keys`: adds one-time prekeys.
    case replenish
    /// `PUT list`: a later version of the account's own list, with one device more or less.
    case list
    /// `POST messages`: one message for one or more devices.
    case post
    /// `GET messages?after=N&wait=SECONDS`: the messages that wait for the device.
    case fetch
    /// `PUT messages/acknowledged`: acknowledges received messages.
    case acknowledge
    /// `POST receipts`.
    case receipt
    /// `POST blobs`.
    case publishBlob
    /// `GET blobs/{id}`.
    case blob(String)
    /// `DELETE blobs/{id}`.
    case removeBlob(String)
    /// `PUT config`: what the account's messenger publishes, byte for byte.
    case publishConfig
    /// `GET accounts/{account}/config`.
    case config(AccountID)
    /// `PUT push`: the token of this device for the operator's push hook.
    case setPushToken
    /// `DELETE push`.
    case removePushToken
    /// `POST calls`: a message about a call of the app, from a device without keys.
    case postCall
    /// `GET calls?device=NAME&after=N&wait=SECONDS`: the messages about calls that wait for such a device.
    case calls
    /// `POST registrations`: a device requests to be added to the account's list.
    case register
    /// `GET relays/{session}?account=ACCOUNT&device=DEVICE`: a relay to another device, by an upgrade.
    case relay([UInt8])
    /// `GET socket`: a WebSocket for the messages of the device, by an upgrade.
    case socket

    /// Whether it is about mailboxes or calls, which have limits of their own.
    var isMail: Bool {
        switch self {
        case .post, .fetch, .acknowledge, .receipt, .postCall, .calls, .socket: true
        default: false
        }
    }

    /// Whether its answer may wait until there is something to answer.
    var mayWait: Bool { self == .fetch || self == .calls }

    package static let prefix = "/_pawl/"
    private static let version = "v1"
    /// The methods of all calls.
    package static let methods = ["GET", "POST", "PUT", "DELETE"]

    /// Whether a path belongs to the gateway, under any reading that a backend could apply.
    ///
    /// A backend may decode the path, read backslashes as slashes, ignore empty segments and parameters (RFC 3986
    /// section 3.3), and resolve dot segments.
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

    /// Finds the kind of a call; nil if there is no such call.
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
        case ("GET", 1, "socket", _): self = .socket
        case ("PUT", 1, "config", _): self = .publishConfig
        case ("PUT", 1, "push", _): self = .setPushToken
        case ("DELETE", 1, "push", _): self = .removePushToken
        case ("POST", 1, "receipts", _): self = .receipt
        case ("POST", 1, "calls", _): self = .postCall
        case ("GET", 1, "calls", _): self = .calls
        case ("POST", 1, "registrations", _): self = .register
        case ("POST", 1, "blobs", _): self = .publishBlob
        case ("GET", 2, "blobs", let id?): self = .blob(id)
        case ("DELETE", 2, "blobs", let id?): self = .removeBlob(id)
        case ("GET", 2, "relays", let name?):
            guard let session = Self.session(name) else { return nil }
            self = .relay(session)
        case ("GET", 3, "accounts", "devices"):
            guard let account = Self.account(call[1]) else { return nil }
            self = .devices(account)
        case ("GET", 3, "accounts", "config"):
            guard let account = Self.account(call[1]) else { return nil }
            self = .config(account)
        case ("POST", 3, "accounts", "bundles"):
            guard let account = Self.account(call[1]) else { return nil }
            self = .bundles(account)
        default: return nil
        }
    }

    /// The name of a relay's session in lower-case hexadecimal digits; nil if it has another form.
    private static func session(_ name: String) -> [UInt8]? {
        let digits = Array(name.utf8)
        guard digits.count == 2 * RelayCall.sessionSize,
            digits.allSatisfy({ (0x30...0x39).contains($0) || (0x61...0x66).contains($0) })
        else { return nil }
        let values = digits.map { $0 < 0x40 ? $0 - 0x30 : $0 - 0x61 + 10 }
        return stride(from: 0, to: values.count, by: 2).map { values[$0] << 4 | values[$0 + 1] }
    }

    package static func account(_ name: String) -> AccountID? {
        FoundMessage.isUsable(name) ? .services(name) : nil
    }
}
