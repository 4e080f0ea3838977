// Calls of the transport as requests of the queue, and back.

import Devices
import Envelope
import RequestQueue

/// A call that waits in the queue. Requests of one lane are sent one after the other: those with envelopes for a device
/// (see ``DeviceLanes``), and those for the server itself. The names in a call are the lines of the request's path.
enum QueuedCall: Equatable {
    /// - Parameters:
    ///   - sequence: the place of the message whose state depends on the call; nil for none.
    ///   - expires: when the call becomes useless, in milliseconds since 1970; nil for never.
    case envelope([UInt8], to: [Attempt.Recipient], message: MessageID, sequence: UInt64?, expires: Int64? = nil)
    case plaintext(user: String, message: MessageID)
    case receipt(MessageID, user: String, isRead: Bool)
    /// Publishes the account's keys, as they are when the call is made.
    case publish
    case register([UInt8])

    /// The place of the message whose state depends on the call; nil for none.
    var sequence: UInt64? {
        switch self {
        case .envelope(_, _, _, let sequence, _): sequence
        case .plaintext(_, let message): message.value
        case .receipt, .publish, .register: nil
        }
    }

    /// The devices for which it has an envelope.
    var devices: [DeviceID] {
        if case .envelope(_, let recipients, _, _, _) = self { recipients.map(\.device) } else { [] }
    }

    /// How many ids after that of its request belong to it: an envelope for several may have to be divided into one for each.
    var reservedIDs: UInt64 { devices.count > 1 ? UInt64(devices.count) : 0 }

    var isRegistration: Bool { if case .register = self { true } else { false } }

    /// See ``Attempt/expires``.
    var expires: Int64? { if case .envelope(_, _, _, _, let expires) = self { expires } else { nil } }

    /// Sent again after every failure but a refusal, and not before the transport is authenticated.
    ///
    /// - Parameter lane: that of its devices; nil for calls without.
    func request(tenant: String, lane deviceLane: String?) -> NewRequest {
        let (tag, segments, body, lane) = parts
        let config = APIRequestConfig(
            method: .post, path: APIRequestPath([.text(segments.joined(separator: "\n"))]), body: .rawData(body),
            tag: tag,
            queueingStrategy: QueueingStrategy(
                synchronization: .barrier,
                retryPolicy: [.onNetworkInterrupt, .onRequestTimeout, .onTransientStatus]),
            background: isBackground)
        return NewRequest(config, tenant: tenant, lane: deviceLane ?? lane)
    }

    /// Receipts are sent after messages.
    private var isBackground: Bool { if case .receipt = self { true } else { false } }

    private var parts: (tag: String, segments: [String], body: [UInt8], lane: String) {
        switch self {
        case .envelope(let bytes, let recipients, let message, let sequence, let expires):
            let names = recipients.flatMap { [$0.user, $0.device.name] }
            let numbers = [sequence, expires.map { UInt64($0) }].map { $0.map { DeviceID($0).name } ?? "-" }
            return ("send", [message.name] + numbers + names, bytes, "send")
        case .plaintext(let user, let message): return ("plain", [message.name, user], [], "plain " + user)
        case .receipt(let message, let user, let isRead):
            return (isRead ? "read" : "received", [message.name, user], [], "receipt " + user)
        case .publish: return ("publish", [], [], "keys")
        case .register(let bytes): return ("register", [], bytes, "keys")
        }
    }

    /// Reads the request of a call; nil if it is none.
    init?(_ request: QueuedRequest) {
        let config = request.config
        var body: [UInt8] = []
        if case .rawData(let bytes)? = config.body { body = bytes }
        var segments: [String] = []
        if case .text(let text)? = config.path.segments.first {
            segments = text.split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
        }
        let message = segments.first.flatMap { MessageID(name: $0) }
        switch config.tag {
        case "send":
            guard let message, segments.count >= 5, !segments.count.isMultiple(of: 2) else { return nil }
            var recipients: [Attempt.Recipient] = []
            for place in stride(from: 3, to: segments.count, by: 2) {
                guard let device = UInt64(hexadecimal: segments[place + 1][...]) else { return nil }
                recipients.append(.init(user: segments[place], device: DeviceID(device)))
            }
            self = .envelope(
                body, to: recipients, message: message, sequence: UInt64(hexadecimal: segments[1][...]),
                expires: UInt64(hexadecimal: segments[2][...]).flatMap { Int64(exactly: $0) })
        case "plain":
            guard let message, segments.count == 2 else { return nil }
            self = .plaintext(user: segments[1], message: message)
        case "read", "received":
            guard let message, segments.count == 2 else { return nil }
            self = .receipt(message, user: segments[1], isRead: config.tag == "read")
        case "publish": self = .publish
        case "register": self = .register(body)
        default: return nil
        }
    }
}
