import Devices
import DoubleRatchet
import Envelope
import Protection
import StorePort
import TestKit
import Testing
import Vault

/// What the vault keeps of sessions and prekeys with devices elsewhere.
@Suite struct SessionCacheTests {
    private let sealer = StorageSealer(key: [UInt8](repeating: 7, count: 32))
    private let store = InMemoryStore()
    private let id = SessionID(owner: DeviceID(2), peer: DeviceID(4), in: .only)
    private let data: [UInt8] = [1]

    private func sessionCache(_ seed: UInt64, sessionLimit: Int = SessionCache.sessionLimit) -> SessionCache {
        SessionCache(sealer: sealer, store: store, random: SeededGenerator(seed: seed), sessionLimit: sessionLimit)
    }

    private func commit(_ sessionCache: SessionCache) throws {
        _ = try store.commit(try sessionCache.takeChanges().map(\.group))
    }

    /// Two ends of an established session; the first is the keeper's.
    private func session(
        _ own: borrowing IdentityKeyPair, _ peer: borrowing IdentityKeyPair, _ random: inout SeededGenerator
    ) throws -> (own: SessionBox, peer: SessionBox) {
        var preKeys = PreKeyStore()
        var changes: [PreKeyChange] = []
        let bundle = preKeys.bundleForOne(identity: peer, at: 0, random: &random, &changes)
        var mine = try Session.initiate(identity: own, with: bundle, expecting: nil, random: &random)
        var (first, answer, ignored): ([UInt8], [UInt8], [UInt8]) = ([], [], [])
        try mine.encrypt(data.span, associatedData: data.span, random: &random, into: &first)
        var theirs = try preKeys.begin(
            identity: peer, message: first.span, associatedData: data.span, expecting: nil, plaintext: &ignored
        ).commit(to: &preKeys, at: 0, &changes)
        try theirs.encrypt(data.span, associatedData: data.span, random: &random, into: &answer)
        _ = try mine.decrypt(answer.span, associatedData: data.span, into: &ignored)
        return (SessionBox(SessionRecord(mine), fence: 0), SessionBox(SessionRecord(theirs), fence: 0))
    }

    private func bytes(_ box: SessionBox) -> [UInt8] {
        var bytes: [UInt8] = []
        box.sessions.serialize(into: &bytes)
        return bytes
    }

    private func copy(_ box: SessionBox) throws -> Session {
        let bytes = bytes(box)
        return try Session(serialized: bytes.span)
    }

    private func message(_ text: [UInt8], _ box: SessionBox, _ random: inout SeededGenerator) throws -> [UInt8] {
        var message: [UInt8] = []
        try box.sessions.encrypt(text.span, associatedData: data.span, random: &random, into: &message)
        return message
    }

    /// What was on its way in a session that was replaced is opened behind a restart as well.
    @Test func earlierSessionsOutliveARestart() throws {
        var random = SeededGenerator(seed: 1)
        let own = IdentityKeyPair(random: &random)
        let peer = IdentityKeyPair(random: &random)
        let (before, after) = (try session(own, peer, &random), try session(own, peer, &random))
        let first = sessionCache(1)
        try first.adopt(try copy(before.own), as: id)
        try commit(first)
        let onItsWay = try message([5], before.peer, &random)
        try first.adopt(try copy(after.own), as: id)
        try commit(first)

        let second = sessionCache(2)
        let box = try #require(try second.session(id))
        #expect(box.sessions.earlierCount == 1 && box.fence == 2)
        for (text, line) in [([5], onItsWay), ([6], try message([6], after.peer, &random))] as [([UInt8], [UInt8])] {
            var opened: [UInt8] = []
            _ = try box.sessions.decrypt(line.span, associatedData: data.span, into: &opened)
            #expect(opened == text)
        }
    }

    /// What a job has asked for stays in memory while it asks for more, so that every step of a ratchet is stored.
    @Test func sessionsInUseAreNotDropped() throws {
        var random = SeededGenerator(seed: 8)
        let first = sessionCache(1)
        var made: [StoreChange] = []
        let devices = try (0..<6).map {
            try first.device(
                for: .services("user\($0)"), now: Timestamp(monotonic: 1, wall: 1), avoiding: { _ in false }, &made)
        }
        for recipient in devices { try first.pair(devices[0], recipient, in: .only) }
        try commit(first)

        let second = sessionCache(2, sessionLimit: 4)
        let ends = devices.map { SessionCache.ends(sender: devices[0].id, recipient: $0.id, in: .only) }
        for start in [0, 1] {
            // An odd number of sessions first, then both ends of each of the others.
            for end in ends.prefix(start) { _ = try second.session(end.sending) }
            for end in ends.dropFirst(start) {
                let sending = try #require(try second.session(end.sending))
                let receiving = try #require(try second.session(end.receiving))
                for id in [end.sending, end.receiving] { second.markDirty(id) }
                let sealed = try message([1], sending, &random)
                var opened: [UInt8] = []
                _ = try receiving.sessions.decrypt(sealed.span, associatedData: data.span, into: &opened)
                let rows = try second.takeChanges()
                #expect(Set(rows.map(\.row)) == [end.sending, end.receiving])
                #expect(try store.commit(rows.map(\.group)) == [nil, nil])
            }
        }
        // Those that were not used since are not in memory any more.
        weak let unused = try second.session(ends[0].sending)
        for end in ends.dropFirst() { _ = try second.session(end.receiving) }
        #expect(unused === nil)
    }

    /// Who can write to the store cannot exchange rows: each opens in its own place, and a session with its own fence.
    @Test func rowsCannotBeExchanged() throws {
        let now = Timestamp(monotonic: 1, wall: 1)
        let first = sessionCache(1)
        var made: [StoreChange] = []
        let names = [AccountID.services("alice"), .services("bob"), .services("carol")]
        let devices = try names.map { try first.device(for: $0, now: now, avoiding: { _ in false }, &made) }
        let ids = [1, 2].map { SessionID(owner: devices[0].id, peer: devices[$0].id, in: .only) }
        for other in devices.dropFirst() { try first.pair(devices[0], other, in: .only) }
        try commit(first)
        let rows = try ids.map { try #require(try store.session($0)) }
        func opened(_ row: SessionRow) throws -> SessionBox? {
            let place = InMemoryStore()
            _ = try place.commit([[.putSession(row)]])
            let sessionCache = SessionCache(sealer: sealer, store: place, random: SeededGenerator(seed: 3))
            return try sessionCache.session(row.id)
        }
        for (row, other) in [(rows[0], rows[1]), (rows[1], rows[0])] {
            #expect(try opened(row) != nil)
            let exchanged = SessionRow(id: row.id, fence: row.fence, sealedState: other.sealedState)
            #expect(throws: StoreError.self) { try opened(exchanged) }
            let later = SessionRow(id: row.id, fence: row.fence + 1, sealedState: row.sealedState)
            #expect(throws: StoreError.self) { try opened(later) }
        }

        var stored = made.compactMap { change -> DeviceRow? in
            if case .rare(.putDevice(let row)) = change { row } else { nil }
        }
        let second = sessionCache(2)
        try second.adopt(stored)
        (stored[0].sealedIdentity, stored[1].sealedIdentity) = (stored[1].sealedIdentity, stored[0].sealedIdentity)
        let third = sessionCache(3)
        #expect(throws: StoreError.self) { try third.adopt(stored) }
    }

    // MARK: Versions of the messages

    /// Two hosted accounts whose session an earlier version of the program has begun, with messages on their way.
    @Test func hostedSessionsOfVersionTwoGoOnInVersionThree() throws {
        var random = SeededGenerator(seed: 6)
        let first = sessionCache(1)
        var made: [StoreChange] = []
        let devices = try ["alice", "bob"].map {
            try first.device(
                for: .services($0), now: Timestamp(monotonic: 1, wall: 1), avoiding: { _ in false }, &made)
        }
        let signed = SignedPreKey(marked: 1, identity: devices[1].identity, random: &random)
        let kem = KEMPreKey(id: 1, isLastResort: true, identity: devices[1].identity, random: &random)
        let bundle = PreKeyBundle(
            identity: devices[1].identity.publicKey, signedPreKey: signed.publicKey, kemPreKey: kem.publicKey,
            oneTimePreKey: nil)
        var (opening, ignored): ([UInt8], [UInt8]) = ([], [])
        var alice = try Session.initiate(
            identity: devices[0].identity, with: bundle, expecting: nil, random: &random)
        try alice.encrypt(data.span, associatedData: data.span, random: &random, into: &opening)
        var bob = try Session.respond(
            identity: devices[1].identity, signedPreKey: signed, oneTimePreKey: nil, kemPreKey: kem,
            message: opening.span, associatedData: data.span, expecting: nil, plaintext: &ignored)
        opening = []
        try bob.encrypt(data.span, associatedData: data.span, random: &random, into: &opening)
        _ = try alice.decrypt(opening.span, associatedData: data.span, into: &ignored)
        var onItsWay: [UInt8] = []
        try alice.encrypt(data.span, associatedData: data.span, random: &random, into: &onItsWay)
        #expect(onItsWay[0] == 0x20)
        let ends = SessionCache.ends(sender: devices[0].id, recipient: devices[1].id, in: .only)
        try first.adopt(alice, as: ends.sending)
        try first.adopt(bob, as: ends.receiving)
        try commit(first)

        let second = sessionCache(2)
        try second.adopt(made.compactMap { if case .rare(.putDevice(let row)) = $0 { row } else { nil } })
        let sending = try #require(try second.session(ends.sending))
        let receiving = try #require(try second.session(ends.receiving))
        var lengths: Set<Int> = []
        for number in UInt8(0)..<200 {
            let sealed = try message([number], sending, &random)
            lengths.insert(sealed.count)
            #expect(sealed[0] == 0x30)
            guard number % 3 > 0 else { continue }
            var opened: [UInt8] = []
            _ = try receiving.sessions.decrypt(sealed.span, associatedData: data.span, into: &opened)
            #expect(opened == [number])
        }
        #expect(lengths == [111])
        var late: [UInt8] = []
        _ = try receiving.sessions.decrypt(onItsWay.span, associatedData: data.span, into: &late)
        #expect(late == data)
        // The session of a device elsewhere keeps its version: the vault does not know what that device reads.
        let third = sessionCache(3)
        let elsewhere = try #require(try third.session(ends.sending))
        #expect(try message([1], elsewhere, &random)[0] == 0x20)
    }

    /// A session that the vault sets up has version 3 from its first message on.
    @Test func newHostedSessionsHaveVersionThree() throws {
        var random = SeededGenerator(seed: 7)
        let cache = sessionCache(1)
        var made: [StoreChange] = []
        let devices = try ["alice", "bob"].map {
            try cache.device(
                for: .services($0), now: Timestamp(monotonic: 1, wall: 1), avoiding: { _ in false }, &made)
        }
        for recipient in devices {
            try cache.pair(devices[0], recipient, in: .only)
            let ends = SessionCache.ends(sender: devices[0].id, recipient: recipient.id, in: .only)
            let box = try #require(try cache.session(ends.sending))
            let lengths = try (0..<300).map { try message([UInt8(truncatingIfNeeded: $0)], box, &random).count }
            #expect(Set(lengths) == [111])
        }
    }

    /// The same of prekeys: the private key of one is none of another's.
    @Test func rowsOfPreKeysCannotBeExchanged() throws {
        var random = SeededGenerator(seed: 4)
        var preKeys = try PreKeys(sealer: sealer, rows: [])
        var changes: [StoreChange] = []
        _ = try preKeys.replenish(
            left: 0, now: Timestamp(monotonic: 1, wall: 1), random: &random, &changes)
        var rows = changes.compactMap { change -> RecordRow? in
            if case .rare(.putRecord(let row)) = change { row } else { nil }
        }
        #expect(rows.count > 1)
        _ = try PreKeys(sealer: sealer, rows: rows)
        (rows[0].value, rows[1].value) = (rows[1].value, rows[0].value)
        #expect(throws: StoreError.self) { _ = try PreKeys(sealer: sealer, rows: rows) }
    }

    /// A job that fails takes back the session that it has begun with.
    @Test func aBeginningThatFailsIsTakenBack() throws {
        var random = SeededGenerator(seed: 2)
        let own = IdentityKeyPair(random: &random)
        let peer = IdentityKeyPair(random: &random)
        let (before, after) = (try session(own, peer, &random), try session(own, peer, &random))
        let sessionCache = sessionCache(1)
        try sessionCache.adopt(try copy(before.own), as: id)
        try commit(sessionCache)
        let box = try #require(try sessionCache.session(id))
        let state = bytes(box)
        try sessionCache.adopt(try copy(after.own), as: id)
        #expect(bytes(box) != state)
        sessionCache.restore(box, as: id)
        #expect(try sessionCache.session(id) === box && bytes(box) == state)
        // Nor does it stay where there was none.
        let other = SessionID(owner: DeviceID(2), peer: DeviceID(6), in: .only)
        try sessionCache.adopt(try copy(after.own), as: other)
        sessionCache.restore(nil, as: other)
        #expect(try sessionCache.session(other) == nil)
    }

    /// So does a job that fails after it has added the session of the other end beside ours.
    @Test func aCrossedSessionThatFailsIsTakenBack() throws {
        var random = SeededGenerator(seed: 7)
        let one = IdentityKeyPair(random: &random)
        let two = IdentityKeyPair(random: &random)
        if one.publicKey.bytes.lexicographicallyPrecedes(two.publicKey.bytes) {
            try addAndWithdraw(one, two, &random)
        } else {
            try addAndWithdraw(two, one, &random)
        }
    }

    private func addAndWithdraw(
        _ lower: borrowing IdentityKeyPair, _ higher: borrowing IdentityKeyPair, _ random: inout SeededGenerator
    ) throws {
        var preKeys = PreKeyStore()
        var changes: [PreKeyChange] = []
        let bundle = preKeys.bundleForOne(identity: higher, at: 0, random: &random, &changes)
        let ours = try Session.initiate(identity: lower, with: bundle, expecting: nil, random: &random)
        let sessionCache = sessionCache(1)
        try sessionCache.adopt(ours, as: id)
        let box = try #require(try sessionCache.session(id))
        let state = bytes(box)
        let crossed = try session(lower, higher, &random).own
        sessionCache.add(crossed: try copy(crossed), to: box, as: id)
        // Ours goes on sending.
        #expect(box.sessions.earlierCount == 1 && !box.sessions.isEstablished)
        box.sessions.withdrawEarlier()
        #expect(bytes(box) == state)
    }

    /// Of another identity nothing listens on.
    @Test func aSessionOfAnotherIdentityReplacesAll() throws {
        var random = SeededGenerator(seed: 3)
        let own = IdentityKeyPair(random: &random)
        let peer = IdentityKeyPair(random: &random)
        let other = IdentityKeyPair(random: &random)
        let (before, after) = (try session(own, peer, &random), try session(own, other, &random))
        let sessionCache = sessionCache(1)
        try sessionCache.adopt(try copy(before.own), as: id)
        try commit(sessionCache)
        let box = try #require(try sessionCache.session(id))
        try sessionCache.adopt(try copy(after.own), as: id)
        #expect(try sessionCache.session(id)?.sessions.earlierCount == 0)
        sessionCache.restore(box, as: id)
        #expect(try sessionCache.session(id) === box)
    }

    /// A row is what it was before there was a store of prekeys in the library: the time, then the key, sealed for its name.
    @Test func rowsOfPreKeysAreWhatTheyWere() throws {
        var random = SeededGenerator(seed: 4)
        let own = IdentityKeyPair(random: &random)
        let signed = SignedPreKey(marked: 7, identity: own, random: &random)
        let kem = KEMPreKey(id: 8, isLastResort: true, identity: own, random: &random)
        let once = OneTimePreKey(id: 9, random: &random)
        let bundle = PreKeyBundle(
            identity: own.publicKey, signedPreKey: signed.publicKey, kemPreKey: kem.publicKey,
            oneTimePreKey: once.publicKey)
        var rows: [RecordRow] = []
        var bytes: [UInt8] = []
        func row(_ name: String) throws {
            let sealed = try sealer.seal([0, 0, 0, 0, 0, 0, 4, 0] + bytes, label: "prekey " + name, random: &random)
            rows.append(RecordRow(kind: .preKey, name: name, value: sealed))
            bytes = []
        }
        signed.serialize(into: &bytes)
        try row("s 7")
        kem.serialize(into: &bytes)
        try row("k 8")
        once.serialize(into: &bytes)
        try row("o 9")

        var preKeys = try PreKeys(sealer: sealer, rows: rows)
        var session = try Session.initiate(
            identity: IdentityKeyPair(random: &random), with: bundle, expecting: nil, random: &random)
        var (first, text): ([UInt8], [UInt8]) = ([], [])
        try session.encrypt(data.span, associatedData: data.span, random: &random, into: &first)
        var changes: [StoreChange] = []
        let beginning = try preKeys.store.begin(
            identity: own, message: first.span, associatedData: data.span, expecting: nil, plaintext: &text)
        _ = try preKeys.commit(beginning, now: Timestamp(monotonic: 0, wall: 2000), random: &random, &changes)
        #expect(text == data && preKeys.store.oneTimeCount == 0 && changes.count == 1)
        guard changes[0] == .removeRecord(.preKey, name: "o 9") else {
            Issue.record("the row of the key that was used stays")
            return
        }
        // What comes new has names of the same form.
        changes = []
        _ = try preKeys.bundle(
            forOne: true, identity: own, now: Timestamp(monotonic: 0, wall: 40 * 86_400_000), random: &random, &changes)
        let names = changes.compactMap { change in
            switch change {
            case .rare(.putRecord(let row)): "+" + row.name
            case .rare(.removeRecord(_, let name)): "-" + name
            default: nil
            }
        }
        let marked = SignedPreKey.Public.paddedHeaderMark | 10
        #expect(names == ["-s 7", "-k 8", "+s \(marked)", "+k 11", "+o 12"])
    }

    @Test func aDamagedRowOfAPreKeyIsCorruption() throws {
        var random = SeededGenerator(seed: 5)
        for name in ["x 1", "s", "o 1"] {
            let sealed = try sealer.seal([1, 2, 3], label: "prekey " + name, random: &random)
            #expect(throws: StoreError.self) {
                _ = try PreKeys(sealer: sealer, rows: [RecordRow(kind: .preKey, name: name, value: sealed)])
            }
        }
    }
}
