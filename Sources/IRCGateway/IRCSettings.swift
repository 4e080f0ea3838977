// What the operator configures for IRC, and what all connections share.

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
package import Vault

/// A service or a bot that messages may go to in the clear. It is recognised by its server or host, never by its nick
/// alone: anybody can take a nick.
package struct Exemption: Sendable, Equatable {
    package enum Proof: Sendable, Equatable {
        /// The server that WHOIS names.
        case server(String)
        /// The host in its source.
        case host(String)
    }

    /// A mask with `*` and `?`.
    package var nick: String
    package var proof: Proof

    package init(nick: String, proof: Proof) { (self.nick, self.proof) = (nick, proof) }
}

/// Settings that a reload can change.
package struct IRCSettings: Sendable {
    /// The name of the network, bound into every envelope.
    package var network: String
    package var exemptions: [Exemption] = []
    package var texts = RemarkTexts()
    package var visibility = CapabilityNegotiation.Visibility()
    /// Whether this listener ends TLS by STARTTLS.
    package var terminatesStartTLS = false
    package var flood = Pacer.Limit.unlimited
    package var fragments = FragmentAssembler.Limits()
    /// Ours: lines of one client that may wait for a commit or for the backend before it is no longer read.
    package var heldLines = 512
    /// How long a client is kept whose backend has gone, in milliseconds.
    package var outagePatience: Int64 = 15 * 60 * 1000
    /// Whether clients are asked for CTCP VERSION when they register.
    package var asksForVersion = false
    /// How a sidecar shows its client that a message came end to end.
    package var marks = ProtectionMarks.text

    package init(network: String) { self.network = network }
}

/// What all connections of a gateway share. Everything in it may be used from any thread.
package final class IRCEnvironment: Sendable {
    package let policies: PolicyTable
    package let roster = Roster()
    package let rooms: RoomTable
    package let opened: OpenedMessages
    package let latches: LatchTable
    package let requests: RequestDesk
    package let tally: Tally
    /// Whose devices are known; nothing but in a sidecar.
    package let peers: PeerTable?
    /// The public keys of people's own devices; nothing in a sidecar.
    package let directory: DirectoryTable?
    private let current: Mutex<IRCSettings>

    package init(
        settings: IRCSettings, policies: PolicyTable, latches: LatchTable = LatchTable(),
        rooms: RoomTable = RoomTable(), opened: OpenedMessages = OpenedMessages(), tally: Tally = Tally(),
        peers: PeerTable? = nil, directory: DirectoryTable? = nil, requests: RequestDesk = RequestDesk()
    ) {
        self.requests = requests
        self.peers = peers
        self.directory = directory
        current = Mutex(settings)
        self.policies = policies
        self.latches = latches
        self.rooms = rooms
        self.opened = opened
        self.tally = tally
    }

    /// The settings now; connections look when the version of the policies rises.
    package var settings: IRCSettings { current.withLock { $0 } }

    package func replace(_ settings: IRCSettings) {
        current.withLock { $0 = settings }
        policies.update { _ in }
    }
}

/// What one event makes a session do. One object per event loop, emptied by the runner after each event.
package final class SessionOutput {
    /// Bytes for the backend.
    package var upstream = ByteBuffer()
    /// Bytes for the client.
    package var downstream = ByteBuffer()
    package var jobs: [VaultJob] = []
    /// Deliveries whose lines are among the bytes for the client.
    package var delivered: [UInt64] = []
    /// When the session wants to be woken, on the monotonic clock.
    package var wakeAt: Int64?
    package var closesDownstream = false
    package var closesUpstream = false
    /// The client is to be spoken to in TLS once the bytes are written.
    package var startsTLS = false

    package init() {}

    package func reset() {
        upstream.clear(minimumCapacity: 0)
        downstream.clear(minimumCapacity: 0)
        jobs.removeAll(keepingCapacity: true)
        delivered.removeAll(keepingCapacity: true)
        wakeAt = nil
        closesDownstream = false
        closesUpstream = false
        startsTLS = false
    }

    /// Asks to be woken no later than this.
    package func wake(at time: Int64) { wakeAt = min(wakeAt ?? time, time) }
}
