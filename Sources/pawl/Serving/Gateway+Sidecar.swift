// A running sidecar as its commands see it.

import Devices
import DoubleRatchet
import Envelope
import IRCGateway
import NIOCore
import NIOPosix
import NIOSupport
import Protection
import Reports
import RequestQueue
import StorePort
import Vault

extension Gateway {
    /// - Throws: ``AdminFailure`` where this is no sidecar.
    func peers() throws -> PeerTable {
        guard let peers = environment.peers else {
            throw AdminFailure(
                "This is a gateway, not a sidecar: name the sidecar's directory with --data. Here: pawl devices list.")
        }
        return peers
    }

    /// Somebody whose keys are known.
    func peer(named name: String) throws -> Peer {
        let all = try peers().all
        guard let peer = all.first(where: { $0.name.displayName.lowercased() == name.lowercased() }) else {
            throw AdminFailure(
                "No keys of \(name) are known. If you have just written to each other, wait until both sides have read that "
                    + "keys were exchanged: that takes some seconds. See: pawl sidecar status.")
        }
        return peer
    }

    /// What two people compare. The keys are those that both device lists began with.
    func safetyNumber(with chain: DeviceChain) throws -> SafetyNumber {
        guard let own = try peers().own else { throw AdminFailure("The sidecar has no device yet. Start it again.") }
        return SafetyNumber(Self.party(own.chain), Self.party(chain))
    }

    private static func party(_ chain: DeviceChain) -> SafetyNumber.Party {
        // Each side calls the other by names of its own, so the key is the name.
        SafetyNumber.Party(identifier: chain.root.bytes, key: chain.root)
    }

    /// Carries out what a person has decided, and waits until it is stored.
    func decide(_ decision: PeerDecision, about name: AccountID) async throws {
        vault.submit([
            .decide(name, decision), .record([audit("sidecar", "\(decision) \(name.displayName)")]),
        ])
        try await vault.drained(on: MultiThreadedEventLoopGroup.singleton.next()).get()
    }

    /// How the rooms of all connected clients are protected. A connection that does not answer within a second is left out.
    func rooms() async throws -> [(connection: ConnectionID, report: RoomReport)] {
        let connections = environment.roster.entries.map(\.connection)
        let (answers, continuation) = AsyncStream.makeStream(of: [(connection: ConnectionID, report: RoomReport)].self)
        vault.send(
            connections.map { connection in
                AddressedReply(
                    connection: connection,
                    reply: .rooms({ rooms in continuation.yield(rooms.map { (connection, $0) }) }))
            })
        let deadline = Task {
            try await Task.sleep(for: .seconds(1))
            continuation.finish()
        }
        defer { deadline.cancel() }
        var rooms: [(connection: ConnectionID, report: RoomReport)] = []
        var missing = connections.count
        guard missing > 0 else { return [] }
        for await answer in answers {
            rooms += answer
            missing -= 1
            if missing == 0 { break }
        }
        return rooms
    }

    /// A room that a connected client is in.
    ///
    /// - Throws: ``AdminFailure`` where no client is in it.
    func room(joined name: String) async throws -> (connection: ConnectionID, report: RoomReport) {
        let folded = ExactText(room(name).roomName ?? name)
        guard let found = try await rooms().first(where: { ExactText($0.report.name) == folded }) else {
            throw AdminFailure(
                "No client of this sidecar is in \(name). Join it, then try again. See: pawl sidecar status.")
        }
        return found
    }

    /// Carries out what the person has decided about a room, and sends it to the others there.
    ///
    /// - Throws: ``AdminFailure`` where it could not be stored.
    func ask(_ act: RoomRequest.Act, _ room: (connection: ConnectionID, report: RoomReport)) async throws {
        let (answers, continuation) = AsyncStream.makeStream(of: Bool.self)
        var job = RoomRequestJob(connection: room.connection, act: act, room: room.report.name)
        job.done = { continuation.yield($0) }
        vault.send([AddressedReply(connection: room.connection, reply: .askRoom(job))])
        let deadline = Task {
            try await Task.sleep(for: .seconds(10))
            continuation.finish()
        }
        defer { deadline.cancel() }
        for await isStored in answers where isStored { return }
        throw AdminFailure("The decision could not be stored, or the client has just disconnected. Try again.")
    }

    /// Sends control messages over one of the connections.
    ///
    /// - Throws: ``AdminFailure`` where no client is connected.
    func write(_ letters: [(to: AccountID, message: ControlMessage)]) throws {
        guard let connection = environment.roster.entries.first?.connection else {
            throw AdminFailure("Connect a client to this sidecar first: the message goes over its connection.")
        }
        vault.send(
            letters.map { AddressedReply(connection: connection, reply: .letter($0.to, $0.message.body)) })
    }

    /// Takes a device out of the person's list, and tells everybody.
    func revoke(_ device: DeviceID) async throws {
        vault.submit([.revoke(device), .record([audit("sidecar", "revoke \(device.value)")])])
        try await vault.drained(on: MultiThreadedEventLoopGroup.singleton.next()).get()
        guard let own = try peers().own, own.chain.identity(of: device) == nil else {
            throw AdminFailure("The device could not be removed: the list is at its limit. Start again with a new one.")
        }
        try? write(try peers().all.map { ($0.name, .acknowledge(own.chain)) })
    }

    func lowerLatch(ofPeer name: AccountID) throws {
        let conversation = ConversationID(.own, name)
        try commit([.removeConversation(conversation)])
        environment.latches.reset(conversation)
        vault.submit([.reset(conversation)])
    }

    /// A question that a person has to answer before something is done.
    func question(_ text: String, _ words: String) -> AdminAnswer {
        let token = confirmations.issue(for: words)
        return AdminAnswer(
            exit: ExitStatus.needsConfirmation, out: "", error: "\(text) To confirm, add: --confirm \(token)",
            confirmation: token)
    }
}
