// Answers of the control plane.

package import Envelope
package import HTTPCodec
package import JSONCodec
package import NIOCore

/// An answer to a call.
package struct ControlAnswer: Equatable, Sendable {
    package var status: Int
    /// A JSON object.
    package var body: JSONFragment
    /// The protocol to which the client has to upgrade.
    private var upgrade: String?

    init(_ members: [(name: String, value: JSONFragment)], status: Int = 200) {
        (self.status, body) = (status, .object(members))
    }

    /// The reason why a call fails.
    package enum Fault: Error, Equatable, Sendable {
        case notLoggedIn
        /// A page of another origin uses a login that the browser adds.
        case foreignPage
        case backendUnreachable
        case unknownCall
        case policyIsOff
        case malformed
        case tooLong
        case tooMany
        case noChallenge
        case notProven
        case notFound
        case full
        case unknownDevices([DeviceID])
        case callEnded
        case noCall
        case otherDevice
        case outOfOrder(next: Int)
        case notStored
        /// A relay or a WebSocket was asked for without an upgrade to this protocol.
        case noUpgrade(String)
        /// The other device has not come to the relay.
        case notMet
        /// The gateway collects too much for its clients at present.
        case noRoom
        case refused(String)

        /// The HTTP status. RFC 9110 section 15.
        package var status: Int {
            switch self {
            case .notLoggedIn: 401
            case .backendUnreachable: 502
            case .unknownCall, .notFound, .noCall: 404
            case .callEnded: 410
            case .foreignPage, .policyIsOff, .notProven: 403
            case .malformed: 400
            case .tooLong: 413
            case .tooMany, .full: 429
            case .notStored, .noRoom: 503
            case .noUpgrade: 426
            case .notMet: 504
            case .noChallenge, .refused, .unknownDevices, .otherDevice, .outOfOrder: 409
            }
        }

        /// A stable code for programs.
        package var code: String {
            switch self {
            case .notLoggedIn: "pawl_not_logged_in"
            case .foreignPage: "pawl_foreign_page"
            case .backendUnreachable: "pawl_backend_gone"
            case .unknownCall: "pawl_unknown_call"
            case .policyIsOff: "pawl_takes_no_part"
            case .malformed: "pawl_malformed"
            case .tooLong: "pawl_too_long"
            case .tooMany: "pawl_too_many"
            case .noChallenge: "pawl_no_challenge"
            case .notProven: "pawl_not_proven"
            case .notFound: "pawl_not_found"
            case .full: "pawl_full"
            case .unknownDevices: "pawl_unknown_devices"
            case .callEnded: "pawl_call_ended"
            case .noCall: "pawl_no_call"
            case .otherDevice: "pawl_other_device"
            case .outOfOrder: "pawl_out_of_order"
            case .notStored: "pawl_not_stored"
            case .noUpgrade: "pawl_no_upgrade"
            case .notMet: "pawl_not_met"
            case .noRoom: "pawl_no_room"
            case .refused: "pawl_refused"
            }
        }

        /// The fault in words, for people.
        package var words: String {
            switch self {
            case .notLoggedIn: "The chat server rejects this login. Log in there, and send the credential it issued."
            case .foreignPage:
                "This page may not use the browser's login here. If it is your organisation's, your operator can allow it "
                    + "(cors.origins with credentials: true)."
            case .backendUnreachable: "The chat server does not answer, so this login cannot be checked. Try again."
            case .unknownCall: "The gateway has no such call."
            case .policyIsOff: "The policy of your account is off: the gateway does nothing for it."
            case .malformed: "The gateway does not understand this call."
            case .tooLong: "The call is too long."
            case .tooMany: "Too many calls in a minute. Try again later."
            case .noChallenge: "Ask for a challenge first. Each can be answered once, within two minutes."
            case .notProven: "Prove your device first: POST challenge, then PUT device."
            case .notFound: "Nothing with this name exists."
            case .full: "The storage is full. Try again after messages were fetched or blobs removed."
            case .unknownDevices: "Not sent: the devices named are not published. Ask for the bundles again."
            case .callEnded: "The call has ended."
            case .noCall: "There is no such call: no offer was made, or the offer is too old."
            case .otherDevice: "Another device of your account is in this call."
            case .outOfOrder(let next): "An earlier message about this call is missing. Send number \(next) first."
            case .notStored: "The gateway could not store it. Try again later."
            case .noUpgrade(let name): "Ask for it with Connection: Upgrade and Upgrade: \(name), over HTTP/1.1."
            case .notMet: "The other device has not come. Try again later."
            case .noRoom: ExchangeRefusal.noRoomWords
            case .refused(let reason): "Not done: \(reason)."
            }
        }
    }

    package init(_ fault: Fault) {
        var members: [(name: String, value: JSONFragment)] = [
            ("error", .string(fault.code)), ("message", .string(fault.words)),
        ]
        if case .unknownDevices(let devices) = fault {
            members.append(("devices", .array(devices.map { .string($0.name) })))
        }
        if case .outOfOrder(let next) = fault { members.append(("next", .integer(next))) }
        self.init(members, status: fault.status)
        if case .noUpgrade(let name) = fault { upgrade = name }
    }

    /// The answer as an HTTP response.
    package var response: (ResponseHead, ByteBuffer) {
        var head = ResponseHead(status, headers: ["Content-Type": "application/json", "Cache-Control": "no-store"])
        if let upgrade { head.headers.add("Upgrade", upgrade) }
        if [429, 502, 503].contains(status) { head.headers.add("Retry-After", "5") }
        return (head, ByteBuffer(bytes: body.bytes))
    }
}

extension JSONFragment {
    /// A string with bytes in Base64, without padding.
    package static func bytes(_ bytes: [UInt8]) -> JSONFragment {
        var text: [UInt8] = []
        text.reserveCapacity(Base64.encodedLength(bytes.count))
        Base64.encode(bytes[...], into: &text)
        return .base64(text)
    }
}
