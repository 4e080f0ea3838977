// A running sidecar as its commands see it.

import CommitLoop
import Devices
import DoubleRatchet
import Envelope
import IRCGateway
import NIOSupport
import Protection
import Reports
import RequestQueue
import StorePort
import Vault

/// The gateway of one person's client.
struct Sidecar: Sendable {
    let gateway: Gateway
    let peers: PeerCache
    let front: IRCFront

    /// Returns the peer of a name.
    ///
    /// - Throws: ``AdminFailure`` if no keys of that peer are known.
    func peer(named name: String) throws -> Peer {
        guard let peer = peers.all.first(where: { $0.name.displayName.lowercased() == name.lowercased() }) else {
            throw AdminFailure(
                .noKeys,
                "No keys of \(name) are known. If you have just written to each other, wait some seconds until both sides "
                    + "report that keys were exchanged. See: pawl sidecar status.")
        }
        return peer
    }

    /// Returns the number that two people compare, of the first keys of both device lists.
    func safetyNumber(with deviceList: DeviceList) throws -> SafetyNumber {
        guard let own = peers.own else {
            throw AdminFailure(.noOwnDevice, "The sidecar has no device yet. Start it again.")
        }
        return own.deviceList.safetyNumber(with: deviceList)
    }

    /// The person's contact card under the nick of a connected client; nil if none is connected or no device is made.
    func card() -> CardForm? {
        guard let own = peers.own, let entry = front.environment.roster.entries.first else { return nil }
        return try? CardForm(name: entry.nick.lowercased(), root: own.deviceList.root)
    }

    /// Applies a person's decision, and waits until it is stored.
    func decide(_ decision: PeerDecision, about name: AccountID) async throws {
        let act = if case .confirm = decision { "verify" } else { "\(decision)" }
        front.thread.submit([
            .sidecar(.decide(name, decision)), .record([gateway.audit("sidecar", "\(act) \(name.displayName)")]),
        ])
        try await front.drain()
    }

    /// Removes a device from the person's list, and notifies the device and all peers.
    func revoke(_ device: DeviceID) async throws {
        let name = peers.all.first { $0.hasConfirmed(device) }?.name
        let connection = front.environment.roster.entries.first?.connection
        let farewell = name.flatMap { name in
            connection.map { Farewell(connection: $0, nick: name.displayName) }
        }
        front.thread.submit([
            .sidecar(.revoke(device, farewell: farewell)),
            .record([gateway.audit("sidecar", "revoke \(device.value)")]),
        ])
        try await front.drain()
        guard let own = peers.own, own.deviceList.identity(of: device) == nil else {
            throw AdminFailure(
                .listFull, "The device could not be removed: the list is at its limit. Start again with a new one.")
        }
        try? write(peers.all.map { ($0.name, .acknowledge(own.deviceList)) })
    }

    func lowerLatch(ofPeer name: AccountID) throws {
        let conversation = ConversationID(.own, name)
        try gateway.commit([.removeConversation(conversation)])
        gateway.tables.latches.reset(conversation)
        front.reset(conversation)
    }

    /// Sends control messages over one of the connections.
    ///
    /// - Throws: ``AdminFailure`` if no client is connected.
    func write(_ controlMessages: [(to: AccountID, message: ControlMessage)]) throws {
        guard let connection = front.environment.roster.entries.first?.connection else {
            throw AdminFailure(
                .noClient, "Connect a client to this sidecar first: the message goes over its connection.")
        }
        front.thread.send(
            controlMessages.map {
                AddressedReply(connection: connection, reply: .sidecar(.controlMessage($0.to, $0.message.body)))
            })
    }

    // MARK: Plain text

    /// Whether plain text to a person, and from them, is refused.
    func demandsProtection(of nick: String) -> Bool {
        gateway.tables.latches.isProtectedName(nick.lowercased(), for: .own)
    }

    /// Refuses plain text to a person, and withholds theirs, until ``lowerLatch(ofPeer:)``.
    func demandProtection(of nick: String) async throws {
        let folded = nick.lowercased()
        let name = (try? peer(named: nick))?.name ?? .nick(folded)
        let conversation = ConversationID(.own, name)
        front.thread.submit([
            .protect(conversation, names: conversation.first == .own ? ("", folded) : (folded, "")),
            .record([gateway.audit("sidecar", "protect \(folded)")]),
        ])
        try await front.drain()
        guard demandsProtection(of: nick) else {
            throw AdminFailure(.notStored, "The decision could not be stored. Try again.")
        }
    }

    /// Allows plain text to a person of whom no keys are known.
    func allowPlaintext(to nick: String) throws {
        let folded = nick.lowercased()
        guard let name = gateway.tables.latches.peer(named: folded, for: .own) else { return }
        try gateway.commit([gateway.audit("sidecar", "plain \(folded)")])
        try lowerLatch(ofPeer: name)
    }

    // MARK: Rooms

    /// Whether a name begins as the names of rooms do.
    static func isRoom(_ name: String) -> Bool { name.first.map { "#&+!".contains($0) } == true }

    /// A room that a client of the sidecar is in.
    struct Room: Sendable {
        var connection: ConnectionID
        var report: RoomReport
    }

    /// Returns the protection of the rooms of all connected clients.
    ///
    /// Connections that do not answer within a second are left out.
    func rooms() async throws -> [Room] {
        let connections = front.environment.roster.entries.map(\.connection)
        let (answers, continuation) = AsyncStream.makeStream(of: [Room].self)
        front.thread.send(
            connections.map { connection in
                AddressedReply(
                    connection: connection,
                    reply: .sidecar(
                        .rooms({ reports in
                            continuation.yield(reports.map { Room(connection: connection, report: $0) })
                        })))
            })
        let deadline = Task {
            try await Task.sleep(for: .seconds(1))
            continuation.finish()
        }
        defer { deadline.cancel() }
        var rooms: [Room] = []
        var missing = connections.count
        guard missing > 0 else { return [] }
        for await answer in answers {
            rooms += answer
            missing -= 1
            if missing == 0 { break }
        }
        return rooms
    }

    /// Finds a room that a connected client is in.
    ///
    /// - Throws: ``AdminFailure`` if no client is in it.
    func room(joined name: String) async throws -> Room {
        let folded = ExactText(front.names().room(name).roomName ?? name)
        guard let found = try await rooms().first(where: { ExactText($0.report.name) == folded }) else {
            throw AdminFailure(
                .notInRoom,
                "No client of this sidecar is in \(name). Join it, then try again. See: pawl sidecar status.")
        }
        return found
    }

    /// Applies the person's decision about a room, and sends it to the other members.
    ///
    /// - Throws: ``AdminFailure`` if it could not be stored.
    func ask(_ act: RoomRequest.Act, _ room: Room) async throws {
        let (answers, continuation) = AsyncStream.makeStream(of: Bool.self)
        var job = RoomRequestJob(connection: room.connection, act: act, room: room.report.name)
        job.done = { continuation.yield($0) }
        front.send(.sidecar(.askRoom(job)), to: [room.connection])
        let deadline = Task {
            try await Task.sleep(for: .seconds(10))
            continuation.finish()
        }
        defer { deadline.cancel() }
        for await isStored in answers where isStored { return }
        throw AdminFailure(
            .notStored, "The decision could not be stored, or the client has just disconnected. Try again.")
    }
}
