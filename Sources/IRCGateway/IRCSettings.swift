// The operator's settings for IRC, and the state that all connections share.

package import DeviceDirectory
package import Devices
package import Envelope
package import IRCCodec
package import NIOCore
package import Outbox
package import Protection
package import Reports
import RequestQueue
import Synchronization
import Vault

/// A service or bot that exchanges plaintext with people under every policy.
///
/// It is recognised by its server or host, never by its nick alone: anybody can take a nick.
package struct Exemption: Sendable, Equatable {
    package enum Proof: Sendable, Equatable {
        /// The server in the reply to WHOIS.
        case server(String)
        /// The host in its source.
        case host(String)
    }

    /// A mask with `*` and `?`.
    package var nick: String
    package var proof: Proof

    package init(nick: String, proof: Proof) { (self.nick, self.proof) = (nick, proof) }
}

/// Settings that a reload can change. Those that the configuration has a key for have no default here.
package struct IRCSettings: Sendable {
    /// The name of the network, bound into every envelope.
    package var network: String
    package var exemptions: [Exemption] = []
    /// What happens to the texts of commands where protection is demanded.
    package var commandTexts = CommandTexts()
    package var texts = NoticeTexts()
    package var visibility = CapabilityNegotiation.Visibility()
    /// Whether this listener terminates TLS after STARTTLS.
    package var terminatesStartTLS = false
    package var flood = Pacer.Limit.unlimited
    package var fragments = FragmentAssembler.Limits()
    /// The limits of messages of several lines that clients may send; nil if they may not.
    package var multiline = MultilineLimits(messageLines: Armour.maximumFragments)
    /// Ours: lines of one client that may wait for a commit or for the backend before it is no longer read.
    package var heldLines: Int
    /// The messages of one account that may wait for the backend; further ones are refused.
    package var pendingRequests: Int
    /// How long a client stays connected during an outage of the backend, in milliseconds.
    package var outagePatience: Int64
    /// Whether the gateway sends clients a CTCP VERSION request when they register.
    package var asksForVersion: Bool
    /// How a sidecar marks messages that were end-to-end encrypted.
    package var marks: ProtectionMarks

    package init(
        network: String, heldLines: Int, pendingRequests: Int, outagePatience: Int64, asksForVersion: Bool,
        marks: ProtectionMarks
    ) {
        self.network = network
        self.heldLines = heldLines
        self.pendingRequests = pendingRequests
        self.outagePatience = outagePatience
        self.asksForVersion = asksForVersion
        self.marks = marks
    }
}

/// What the gateway is to its connections, with the keys of people's own devices that go with it.
package enum IRCRole: Sendable {
    /// In front of a backend, for all its users: with the published keys of their devices.
    case front(DirectoryCache)
    /// Beside one person's client: with the person's device and the known peers.
    case sidecar(PeerCache)
}

/// The state that all connections of a gateway share. Thread-safe.
package final class IRCEnvironment: Sendable {
    package let policies: PolicyTable
    package let roster = Roster()
    package let rooms: RoomTable
    package let opened: OpenedMessages
    package let latches: LatchTable
    package let requests: OutboxTables
    package let tally: Tally
    package let role: IRCRole
    private let current: Mutex<IRCSettings>
    /// Folds fewest names together, so that no two people are one before the first 005.
    private let expectedCaseMapping = Mutex(CaseMapping.ascii)

    package init(
        settings: IRCSettings, policies: PolicyTable, latches: LatchTable = LatchTable(),
        rooms: RoomTable = RoomTable(), opened: OpenedMessages = OpenedMessages(), tally: Tally = Tally(),
        requests: OutboxTables = OutboxTables(), role: IRCRole
    ) {
        self.requests = requests
        self.role = role
        current = Mutex(settings)
        self.policies = policies
        self.latches = latches
        self.rooms = rooms
        self.opened = opened
        self.tally = tally
    }

    /// The current settings. Connections read them again when the version of the policies changes.
    package var settings: IRCSettings { current.withLock { $0 } }

    /// How the backend is expected to compare names, from the last connection that was sent 005.
    var caseMapping: CaseMapping {
        get { expectedCaseMapping.withLock { $0 } }
        set { expectedCaseMapping.withLock { $0 = newValue } }
    }

    package func replace(_ settings: IRCSettings) {
        current.withLock { $0 = settings }
        policies.update { _ in }
    }
}

/// The output of a connection's machine for one event. One object per event loop; the runner resets it after each event.
package final class MachineOutput {
    /// Bytes for the backend.
    package var upstream = ByteBuffer()
    /// Bytes for the client.
    package var downstream = ByteBuffer()
    package var jobs: [IRCJob] = []
    /// Commands of the person to the sidecar itself, as they were written.
    package var commands: [String] = []
    /// The delivery numbers of lines among the bytes for the client.
    package var delivered: [UInt64] = []
    /// The time at which to wake the machine, in nanoseconds of the monotonic clock.
    package var wakeAt: Int64?
    package var closesDownstream = false
    package var closesUpstream = false
    /// Whether TLS with the client begins after the bytes are written.
    package var startsTLS = false

    package init() {}

    package func reset() {
        upstream.clear(minimumCapacity: 0)
        downstream.clear(minimumCapacity: 0)
        jobs.removeAll(keepingCapacity: true)
        commands.removeAll(keepingCapacity: true)
        delivered.removeAll(keepingCapacity: true)
        wakeAt = nil
        closesDownstream = false
        closesUpstream = false
        startsTLS = false
    }

    /// Requests a wake-up no later than this time.
    package func wake(at time: Int64) { wakeAt = min(wakeAt ?? time, time) }
}
