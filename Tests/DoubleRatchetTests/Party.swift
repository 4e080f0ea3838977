import TestKit
import Testing

@testable import DoubleRatchet

/// Prekeys at rest, as a database would hold them.
struct PreKeyRows: Equatable {
    private(set) var rows: [PreKeyRecord.Name: [UInt8]] = [:]

    var count: Int { rows.count }

    mutating func keep(_ changes: [PreKeyChange]) {
        for change in changes {
            switch change {
            case .put(let record):
                var bytes: [UInt8] = []
                record.serialize(into: &bytes)
                rows[record.name] = bytes
            case .remove(let name): rows[name] = nil
            }
        }
    }

    /// The store that a restart finds.
    func store(_ limits: PreKeyLimits) throws -> PreKeyStore {
        var records: [PreKeyRecord] = []
        for (name, bytes) in rows { records.append(try PreKeyRecord(name: name, serialized: bytes.span)) }
        return PreKeyStore(limits: limits, records: records)
    }
}

/// A device in a test. Between two calls it exists only as what it has stored: prekeys, and a record for each peer.
final class Party {
    let name: Int
    let identity: IdentityKeyPair
    private(set) var preKeys = PreKeyRows()
    /// States of records, by the name of the peer.
    var records: [Int: [UInt8]] = [:]
    private(set) var begun = 0
    private let limits: PreKeyLimits
    var random: SeededGenerator

    init(_ name: Int, seed: UInt64, limits: PreKeyLimits = PreKeyLimits()) {
        self.name = name
        self.limits = limits
        random = SeededGenerator(seed: seed &* 1000 &+ UInt64(name))
        identity = IdentityKeyPair(random: &random)
    }

    /// Whether its key is the lower one, so that it leads.
    func leads(_ other: Party) -> Bool {
        identity.publicKey.bytes.lexicographicallyPrecedes(other.identity.publicKey.bytes)
    }

    // MARK: Prekeys

    var store: PreKeyStore {
        get throws { try preKeys.store(limits) }
    }

    func bundle(at now: Int64 = 0) throws -> PreKeyBundle {
        var store = try store
        var changes: [PreKeyChange] = []
        let bundle = store.bundleForOne(identity: identity, at: now, random: &random, &changes)
        preKeys.keep(changes)
        return bundle
    }

    // MARK: Sessions

    func record(with peer: Party) throws -> SessionRecord {
        let state = try #require(records[peer.name])
        return try SessionRecord(serialized: state.span)
    }

    func keep(_ record: borrowing SessionRecord, with peer: Party) {
        var state: [UInt8] = []
        record.serialize(into: &state)
        records[peer.name] = state
    }

    func begin(with peer: Party, at now: Int64 = 0) throws {
        let session = try Session.initiate(
            identity: identity, with: try peer.bundle(at: now), expecting: peer.identity.publicKey, random: &random)
        begun += 1
        guard records[peer.name] != nil else { return keep(SessionRecord(session), with: peer) }
        var record = try record(with: peer)
        record.begin(session)
        keep(record, with: peer)
    }

    func seal(_ text: [UInt8], to peer: Party, data: [UInt8] = []) throws -> [UInt8] {
        var record = try record(with: peer)
        var message: [UInt8] = []
        try record.encrypt(text.span, associatedData: data.span, random: &random, into: &message)
        keep(record, with: peer)
        return message
    }

    func open(_ message: [UInt8], from peer: Party, data: [UInt8] = [], at now: Int64 = 0) throws -> [UInt8] {
        var text: [UInt8] = []
        if records[peer.name] != nil {
            var record = try record(with: peer)
            do throws(RatchetError) {
                _ = try record.decrypt(message.span, associatedData: data.span, into: &text)
                keep(record, with: peer)
                return text
            } catch {
                var state: [UInt8] = []
                record.serialize(into: &state)
                #expect(state == records[peer.name] && text.isEmpty, "a refused message left a trace")
                guard error == .differentSession else { throw error }
            }
        }
        guard PreKeyMessage.isPreKeyMessage(message.span) else { throw RatchetError.authenticationFailed }
        var store = try store
        let beginning = try store.begin(
            identity: identity, message: message.span, associatedData: data.span,
            expecting: peer.identity.publicKey, plaintext: &text)
        var changes: [PreKeyChange] = []
        let session = try beginning.commit(to: &store, at: now, &changes)
        if records[peer.name] == nil {
            keep(SessionRecord(session), with: peer)
        } else {
            var record = try record(with: peer)
            record.accept(session)
            keep(record, with: peer)
        }
        preKeys.keep(changes)
        return text
    }

    func refusal(of message: [UInt8], from peer: Party, data: [UInt8] = []) throws -> RatchetError? {
        let before = (records, preKeys)
        do {
            _ = try open(message, from: peer, data: data)
            return nil
        } catch let error as RatchetError {
            #expect(records == before.0 && preKeys == before.1, "a refused message left a trace")
            return error
        }
    }

    func session(with peer: Party) throws -> [UInt8] { try record(with: peer).id }

    /// A leader and a follower that know nothing of each other.
    static func pair(seed: UInt64) -> (leader: Party, follower: Party) {
        let (one, two) = (Party(1, seed: seed), Party(2, seed: seed))
        return one.leads(two) ? (one, two) : (two, one)
    }
}
