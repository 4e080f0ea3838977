// Relays between two devices of accounts behind the gateway, which so learn no address of each other.
//
// Both devices call `GET relays/{session}` with the same session and name each other. The gateway answers when both are
// there, and forwards bytes between the two connections from then on. It reads nothing of them: the devices authenticate
// each other and encrypt. A session that others know is of no use to them, because both ends are proven devices that name
// each other.

package import Envelope
package import NIOCore
package import Protection
import Synchronization

/// Sizes and times of relays.
package struct RelayLimits: Sendable, Equatable {
    /// Ours: how long a device may wait for the other one, in nanoseconds. An attempt of a messenger takes 20 seconds.
    package static let waitingTime: Int64 = 30_000_000_000
    /// Ours: how long a relay may last, in nanoseconds, because the backend is not asked again whether the logins are good.
    package static let longest: Int64 = 3_600_000_000_000

    /// Relays of one account at the same time, those that wait included. 0 turns relays off.
    package var connections: Int
    /// Bytes in a second that a device may send over one relay.
    package var bytesPerSecond: Int
    /// How long a relay without bytes stays open, in nanoseconds.
    package var idle: Int64

    package init(connections: Int = 16, bytesPerSecond: Int = 262_144, idle: Int64 = 60_000_000_000) {
        (self.connections, self.bytesPerSecond, self.idle) = (connections, bytesPerSecond, idle)
    }
}

/// One device that asks for a relay to another one.
package struct RelayCall: Sendable, Hashable {
    /// Bytes of a session's name.
    package static let sessionSize = 32

    /// Drawn by one of the two, and sent to the other one inside a sealed message.
    package let session: [UInt8]
    /// The device, which its login has proven.
    package let own: DeviceID
    package let account: AccountID
    package let credential: CredentialCache.Digest
    /// The device that it wants to meet.
    package let other: DeviceID
    package let otherAccount: AccountID

    package init(
        session: [UInt8], own: DeviceID, of account: AccountID, by credential: CredentialCache.Digest,
        other: DeviceID, of otherAccount: AccountID
    ) {
        (self.session, self.own, self.account, self.credential) = (session, own, account, credential)
        (self.other, self.otherAccount) = (other, otherAccount)
    }
}

/// The devices that wait for others, and the relays of each account.
package final class RelayTable: Sendable {
    package typealias Meeting = @Sendable (RelayLink, RelayLink.Side) -> Void

    private struct Ends: Hashable {
        var session: [UInt8]
        var own: DeviceID
        var account: AccountID
        var other: DeviceID
        var otherAccount: AccountID

        init(_ call: RelayCall) {
            (session, own, account) = (call.session, call.own, call.account)
            (other, otherAccount) = (call.other, call.otherAccount)
        }

        var seenFromOther: Ends {
            var ends = self
            (ends.own, ends.account, ends.other, ends.otherAccount) = (other, otherAccount, own, account)
            return ends
        }
    }

    private struct State {
        var waiting: [Ends: (connection: ConnectionID, met: Meeting)] = [:]
        /// All connections that wait or relay.
        var connections: [ConnectionID: Ends] = [:]
        var counts: [AccountID: Int] = [:]
    }

    private let state = Mutex(State())

    init() {}

    /// Adds a device that waits, or connects it to the one that waits for it.
    ///
    /// - Parameters:
    ///   - limit: see ``RelayLimits/connections``.
    ///   - met: called once, on any thread, when both are there.
    /// - Returns: why the device may not wait; nil if it may.
    package func join(
        _ call: RelayCall, as connection: ConnectionID, limit: Int, _ met: @escaping Meeting
    ) -> ControlAnswer.Fault? {
        let ends = Ends(call)
        let result = state.withLock { state -> Result<Meeting?, ControlAnswer.Fault> in
            guard state.counts[call.account, default: 0] < limit else { return .failure(.tooMany) }
            guard state.waiting[ends] == nil, state.connections[connection] == nil else {
                return .failure(.refused("this device waits with the same session"))
            }
            state.counts[call.account, default: 0] += 1
            state.connections[connection] = ends
            let other = state.waiting.removeValue(forKey: ends.seenFromOther)
            if other == nil { state.waiting[ends] = (connection, met) }
            return .success(other?.met)
        }
        switch result {
        case .failure(let fault): return fault
        case .success(nil): return nil
        case .success(let other?):
            let link = RelayLink()
            other(link, .first)
            met(link, .second)
            return nil
        }
    }

    /// Removes a connection that waits or relays. Later calls do nothing.
    package func leave(_ connection: ConnectionID) {
        state.withLock { state in
            guard let ends = state.connections.removeValue(forKey: connection) else { return }
            if state.waiting[ends]?.connection == connection { state.waiting[ends] = nil }
            let count = state.counts[ends.account, default: 1] - 1
            state.counts[ends.account] = count > 0 ? count : nil
        }
    }

    /// Connections that wait or relay.
    package var count: Int { state.withLock { $0.connections.count } }
}

/// Connects the two ends of a relay, which may be on different threads.
package final class RelayLink: Sendable {
    package enum Side: Int, Sendable {
        case first, second

        package var other: Side { self == .first ? .second : .first }
    }

    /// What one end passes to the other one.
    package enum Event: Sendable, Equatable {
        case bytes(ByteBuffer)
        /// The client has accepted the bytes before; more may follow.
        case taken
        /// No more bytes follow.
        case inputEnded
        case closed
    }

    private struct End {
        var listener: (@Sendable (Event) -> Void)?
        /// What has come before the listener: at most one piece of bytes, because an end sends the next after `taken`.
        var waiting: [Event] = []
    }

    private let ends = Mutex([End(), End()])

    init() {}

    /// - Parameter listener: called on any thread, in the order of the events. It must not wait, and not call the link.
    package func listen(_ side: Side, _ listener: @escaping @Sendable (Event) -> Void) {
        ends.withLock { ends in
            for event in ends[side.rawValue].waiting { listener(event) }
            ends[side.rawValue] = End(listener: listener)
        }
    }

    package func send(_ event: Event, from side: Side) {
        ends.withLock { ends in
            let other = side.other.rawValue
            if let listener = ends[other].listener { listener(event) } else { ends[other].waiting.append(event) }
        }
    }
}

/// How many bytes may be sent: at most those of one second at once.
package struct RelayAllowance: Sendable {
    private let rate: Int64
    private var left: Int64
    private var since: Int64

    /// - Parameter now: monotonic nanoseconds, as in all calls.
    package init(bytesPerSecond: Int, now: Int64) {
        rate = Int64(max(bytesPerSecond, 1))
        (left, since) = (rate, now)
    }

    /// Counts bytes that were sent.
    ///
    /// - Returns: how long the sender has to wait before it sends more, in nanoseconds.
    package mutating func use(_ count: Int, now: Int64) -> Int64 {
        let second: Int64 = 1_000_000_000
        // The products stay below what is missing, times a second: no long pause overflows them.
        let (elapsed, missing) = (max(now - since, 0), rate - left)
        left = elapsed >= missing * second / rate ? rate : left + elapsed * rate / second
        since = max(since, now)
        left -= Int64(count)
        return left >= 0 ? 0 : -left * second / rate
    }
}
