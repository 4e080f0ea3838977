// What devices send each other about a call. The machine reads who, which call, which kind and which number; the payload
// (descriptions, candidates, ciphertexts) is opaque to it.

import RequestQueue

/// The routing key of a call: its `sharedCommunicationId` in one spelling.
///
/// Apps write the same id in several ways. `#`, `conf-`, `slug_` before a UUID, the case of a UUID and white space around
/// an id do not count; all else does. The id that is passed on is the original, byte for byte.
package struct CallRoute: Hashable, Sendable {
    /// Ours: bytes of an id. A UUID has 36, a room's name rarely more than 100.
    package static let limit = 256

    package let text: String

    /// - Returns: nil if the id is empty or longer than ``limit``.
    package init?(_ id: String) {
        guard id.utf8.count <= Self.limit else { return nil }
        var rest = Substring(id)
        while rest.first?.isWhitespace == true { rest.removeFirst() }
        while rest.last?.isWhitespace == true { rest.removeLast() }
        guard !rest.isEmpty else { return nil }
        var core = rest
        if core.first == "#" { core.removeFirst() }
        if core.hasPrefix("conf-") { core.removeFirst(5) }
        let tail = core.suffix(36)
        let isUUID = Self.isUUID(tail)
        // A name before the UUID ends with an underscore.
        if isUUID, tail.count == core.count || core.dropLast(36).last == "_" {
            text = tail.lowercased()
        } else {
            text = core.isEmpty ? String(rest) : String(core)
        }
    }

    package static func == (left: Self, right: Self) -> Bool { left.text.isSame(as: right.text) }
    package func hash(into hasher: inout Hasher) { hasher.combine(ExactText(text)) }

    private static func isUUID(_ text: Substring) -> Bool {
        guard text.utf8.count == 36 else { return false }
        return text.utf8.enumerated().allSatisfy { place, byte in
            if [8, 13, 18, 23].contains(place) { return byte == UInt8(ascii: "-") }
            return (0x30...0x39).contains(byte) || (0x61...0x66).contains(byte) || (0x41...0x46).contains(byte)
        }
    }
}

/// One side of a call: the call, and the account at the other end, whose name is compared byte by byte.
package struct CallKey: Hashable, Sendable {
    package var route: CallRoute
    package var user: String

    package init(_ route: CallRoute, _ user: String) { (self.route, self.user) = (route, user) }

    package static func == (left: Self, right: Self) -> Bool {
        left.user.isSame(as: right.user) && left.route == right.route
    }

    package func hash(into hasher: inout Hasher) {
        hasher.combine(route)
        hasher.combine(ExactText(user))
    }
}

extension String {
    /// Whether all bytes are the same. Swift takes texts for equal that differ in the composition of letters, and a server
    /// may have an account under each of them.
    package func isSame(as other: String) -> Bool { ExactText(self) == ExactText(other) }
}

/// What the account at the other end is in a call.
package enum CallRole: Sendable, Hashable {
    /// The other person of a call of two.
    case person
    /// The server of a group call in which this device takes part.
    case sfu
    /// Another participant of a group call.
    case participant
    /// A participant, where this device is the server of the group call.
    case client
}

/// One message about a call.
package struct CallMessage<Payload: Sendable>: Sendable {
    package enum Content: Sendable {
        case offer(Payload)
        /// - Parameter isFinal: whether no other answer to the same offer follows.
        case answer(Payload, isFinal: Bool = true)
        case candidate(Payload)
        case ciphertext(Payload)
        /// - Parameter invites: whether the recipient's device rings.
        case control(Payload, invites: Bool)
        /// To the person's other devices: this device has answered the call of a person.
        case answered(caller: String)
        /// - Parameters:
        ///   - state: the end state as its sender sees it.
        ///   - caller: in a message to the person's other devices, whose call it was; nil otherwise.
        case end(state: String, caller: String?)
    }

    package var route: CallRoute
    /// The id of this call. Several calls, one after the other, may have the same route.
    package var call: String
    /// What the account at the other end is in the call; nil if the message does not tell.
    package var role: CallRole?
    /// When the sender has begun to number its messages, in milliseconds since 1970.
    package var stream: Int64
    /// The place in the stream, from 0.
    package var number: Int
    package var content: Content
    /// Its length in bytes, as it was received. 0 for messages to send.
    package var size: Int

    package init(
        _ route: CallRoute, call: String, role: CallRole?, stream: Int64, number: Int, _ content: Content, size: Int
    ) {
        (self.route, self.call, self.role, self.stream) = (route, call, role, stream)
        (self.number, self.content, self.size) = (number, content, size)
    }
}

/// Why a message about a call was dropped.
package enum CallDrop: String, Sendable, CaseIterable {
    /// The call has ended.
    case ended
    /// It came after later ones, twice, or from an earlier stream.
    case late
    /// Another call has this id at the moment.
    case otherCall
    /// Another device of the person is in the call.
    case otherDevice
    /// Its sender may not send it, or not now.
    case unexpected
    /// A limit is reached.
    case limit
    /// What it depends on has not come in time.
    case expired
    /// Its sender does not take part in the call.
    case notParticipant
}

/// Why a message about a call is not sent.
package enum CallRefusal: Error, Sendable, Equatable {
    /// The call has ended.
    case ended
    /// There are too many calls, participants or candidates.
    case limit
    /// There is no call that this could belong to: no offer was received, or another call has this id.
    case noCall
}

/// How a call came to its end, apart from the person's own act on this device.
package enum CallEnding: Sendable, Equatable {
    /// The other side has ended it, with the end state as it sees it.
    case byPeer(String)
    /// Another device of the person has answered it.
    case answeredElsewhere
    /// Another device of the person has ended it, with the end state as it sees it.
    case endedElsewhere(String)
    case unanswered(isOutgoing: Bool)
}
