// The vault owns hosted devices and their sessions and is the only part that touches private keys. It turns jobs into
// changes of the store and answers that hold after the commit. It knows no thread, no clock and no socket.

package import DeviceDirectory
package import Devices
package import DoubleRatchet
package import Envelope
package import Outbox
package import Protection
import Reports
package import RequestQueue
package import StorePort

/// A latch that rises when the unit of work is committed.
package struct RaisedLatch: Sendable {
    package var conversation: ConversationID
    package var account: AccountID
    package var peer: AccountID
    var peerName: String
    var accountName: String
    package var protection = Protection.gateway
}

/// The vault. One thread at a time uses it.
package struct Vault<Random: RandomSource> {
    /// Ours: how long a message that the backend has may remain unopened before its sender is told. In milliseconds.
    package static var unopenedAge: Int64 { 20_000 }
    /// Ours: opened envelopes remembered, so that other connections of the account get their copy.
    static var copyLimit: Int { 2048 }
    /// Bytes that a message of an established session is longer than its plaintext, at most: see the wire format of
    /// DoubleRatchet.
    static var ratchetOverhead: Int { Session.maximumOverhead }

    package struct InFlight {
        package var connection: ConnectionID?
        package var account: AccountID
        /// As it was committed, to be sent again by another connection of the account.
        package var request: Request
        package var acknowledgedAt: Int64?
        package var remoteID: String?
        var isOpened = false
        /// For a message to a room, in the count of ``RoomTable``: when it was sealed, and by when the backend had it.
        package var sealedAt: UInt64 = 0
        var saidAt: UInt64?
    }

    package struct CopyKey: Hashable {
        package let sender: DeviceID
        package let message: MessageID
        package let recipient: AccountID
    }

    package let network: String
    /// Names that the network had before; what was sealed under them is still opened.
    package var earlierNetworks: [String] = []
    /// How the chat protocol carries envelopes; its name is bound to each of them.
    package let carrier: Carrier
    package let store: any Store
    package let latches: LatchTable
    package let rooms: RoomTable
    package let openedMessages: OpenedMessages
    package let desk: RequestDesk
    /// How long a request may wait for its sender or its recipient, in milliseconds.
    package let requestAge: Int64
    /// How many requests of one account may wait at a time; more are refused.
    package let pendingLimit: Int
    /// The requests.
    package var queue: QueueMachine
    /// Accounts that could not be given what waits, with the connection that had asked.
    var unrecovered: [AccountID: ConnectionID] = [:]
    /// How many messages were given up for their age while nobody could be told, by sender and by name of the recipient.
    package var lapsed: [AccountID: [ExactText: Int]] = [:]
    /// How many lines a sealed message may take; a longer one is refused.
    package var messageLines = Armour.maximumFragments
    /// How long the keys of what was written are kept, in milliseconds; at zero they are kept in memory only.
    package var historyRetention: Int64 = 365 * 86_400_000
    /// Keys of messages that were written or read last.
    package var contentKeys = RememberedKeys()
    /// When the store is to be asked next for keys that are due, in monotonic nanoseconds.
    var prunesKeysAt: Int64 = 0
    /// Whether a delivery of before this start is known to have been written to a client's socket.
    package let wasDelivered: @Sendable (UInt64) -> Bool
    package let sealer: StorageSealer
    package var keeper: SessionKeeper<Random>
    package var conversations: Set<ConversationID> = []
    /// The message that has protected a conversation, as long as nothing else was sealed there.
    var firstMessages: [ConversationID: MessageID] = [:]
    package var inFlight: [UInt64: InFlight] = [:]
    var recoveredAccounts: Set<AccountID> = []
    let lastOldDelivery: UInt64
    var lastDelivery: UInt64
    package var copies: [CopyKey: OpenedMessage] = [:]
    var copyOrder: [CopyKey] = []
    /// The person's own device; nothing where the vault holds other people's.
    package var devices: DeviceKeeper?
    /// The public keys of people's own devices; nothing in a sidecar.
    package var directory: Directory?
    /// Letters and blobs of their devices.
    var mailroom: Mailroom?
    /// When the next look at what has waited for too long is due, in monotonic nanoseconds.
    var prunesMailAt: Int64 = 0
    /// What connections see of it.
    let directoryTable: DirectoryTable
    /// What the queue has dispatched in the batch whose outcome is being handled, by account.
    var dispatched: [AccountID: [QueueBatch.Dispatch]] = [:]
    /// The message that the present job has opened, for connections that wait for the same line.
    var openedMessage: OpenedMessage?
    /// The room whose key the present job has moved on, in case it fails.
    var openedRoomKey: String?
    /// What connections see of ``devices``.
    let peerTable: PeerTable
    var roomDeliveries = RoomDeliveries()
    var unheard = UnheardCounts()
    package var said = SaidTimes()
    /// Sessions with devices elsewhere whose record cannot be read, and those of them that nobody has been told about.
    package var unreadable: Set<SessionID> = []
    /// Called with each session whose record was found unreadable, once in the life of a process.
    package var onUnreadable: @Sendable (SessionID) -> Void = { _ in }
    /// What an operator has to know of the store, found when it was opened.
    package internal(set) var warnings: [String] = []

    /// Takes over a store.
    ///
    /// - Parameters:
    ///   - peers: given where the vault holds a person's own device, for what connections see of it.
    ///   - directory: given in a front gateway, for what connections see of published devices.
    ///   - changes: what is to be committed before the first job: accounts of ended connections are forgotten, and the queue goes
    ///     on.
    /// - Throws: ``StoreError`` where a device cannot be unsealed.
    package init(
        network: String, carrier: Carrier, sealer: StorageSealer, store: any Store, latches: LatchTable,
        rooms: RoomTable,
        openedMessages: OpenedMessages, desk: RequestDesk = RequestDesk(), requestAge: Int64,
        pendingLimit: Int = 256, now: Moment, random: Random, peers: PeerTable? = nil, directory: DirectoryTable? = nil,
        wasDelivered: @escaping @Sendable (UInt64) -> Bool, changes: inout [StoreChange]
    ) throws(StoreError) {
        peerTable = peers ?? PeerTable()
        directoryTable = directory ?? DirectoryTable()
        self.network = network
        self.carrier = carrier
        self.sealer = sealer
        self.store = store
        self.latches = latches
        self.rooms = rooms
        self.openedMessages = openedMessages
        self.desk = desk
        (self.requestAge, self.pendingLimit) = (requestAge, pendingLimit)
        self.wasDelivered = wasDelivered
        keeper = SessionKeeper(sealer: sealer, store: store, random: random)
        queue = QueueMachine(
            Self.queueSettings(requestAge: requestAge), lease: keeper.randomNumber())
        let contents = try store.load()
        lastDelivery = contents.highestDelivery
        lastOldDelivery = contents.highestDelivery
        try keeper.adopt(contents.devices.filter { $0.account.isVerified })
        if directory != nil { try openDirectory(now, &changes) }
        if directory != nil { mailroom = try Mailroom(store: store) }
        if peers != nil { try holdOwnDevice(sealer, now, &changes) }
        for room in contents.devices.map(\.account) where room.roomName != nil {
            for row in try store.deliveries(of: room) { adopt(row, now, &changes) }
        }
        var ended = Set(contents.devices.map(\.account).filter { !$0.isVerified })
        for row in contents.conversations {
            guard row.id.first.isVerified, row.id.second.isVerified else {
                ended.formUnion([row.id.first, row.id.second].filter { !$0.isVerified })
                continue
            }
            conversations.insert(row.id)
            latches.raise(row.id, to: row.latch)
            latches.remember(name: row.peerNameForFirst, of: row.id.second, for: row.id.first)
            latches.remember(name: row.peerNameForSecond, of: row.id.first, for: row.id.second)
        }
        ended.formUnion(try adoptRequests(highestMessage: contents.highestMessage, now))
        try adoptHolds(now, &changes)
        for account in ended.sorted() {
            changes.append(.forgetAccount(account))
        }
        changes += turnQueue(now).changes.map(StoreChange.queue)
        publishCounts()
    }

    // MARK: Requests in flight

    mutating func track(_ id: UInt64, _ entry: InFlight) {
        var entry = entry
        entry.sealedAt = rooms.time
        inFlight[id] = entry
    }

    mutating func untrack(_ id: UInt64) {
        desk.gate.end(id)
        guard let entry = inFlight.removeValue(forKey: id) else { return }
        if entry.request.isForRoom { said.note(id, entry.saidAt ?? rooms.time) }
    }
}
