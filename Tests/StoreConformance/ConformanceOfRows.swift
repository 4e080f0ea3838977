// Each kind of row.

import Envelope
import Protection
import RequestQueue
import StorePort
import Testing

/// The kinds of changes. ``StoreConformance/checks`` commits each.
package enum ChangeKind: CaseIterable, Sendable {
    case putSession, queue, insertDelivery, removeDelivery, putContentKey, spendMessageID
    case putDevice, removeSessions, forgetAccount, putConversation, removeConversation, setPolicy, audit, putRecord
    case removeRecord, pruneContentKeys, addEvidence, addObservation, addTally

    init(_ change: StoreChange) {
        self =
            switch change {
            case .putSession: .putSession
            case .queue: .queue
            case .insertDelivery: .insertDelivery
            case .removeDelivery: .removeDelivery
            case .putContentKey: .putContentKey
            case .spendMessageID: .spendMessageID
            case .rare(.putDevice): .putDevice
            case .rare(.removeSessions): .removeSessions
            case .rare(.forgetAccount): .forgetAccount
            case .rare(.putConversation): .putConversation
            case .rare(.removeConversation): .removeConversation
            case .rare(.setPolicy): .setPolicy
            case .rare(.audit): .audit
            case .rare(.putRecord): .putRecord
            case .rare(.removeRecord): .removeRecord
            case .rare(.pruneContentKeys): .pruneContentKeys
            case .rare(.addEvidence): .addEvidence
            case .rare(.addObservation): .addObservation
            case .rare(.addTally): .addTally
            }
    }
}

extension StoreConformance {
    static let rowChecks: [Check] = [
        Check(name: "the life of a request", run: requestLife),
        Check(name: "ids are not used again", run: highestIDs),
        Check(name: "deliveries come in order and go", run: deliveries),
        Check(name: "an account is forgotten", run: forgottenAccount),
        Check(name: "accounts of devices are listed once", run: deviceAccounts),
        Check(name: "evidence, observations and tallies add up", run: sums),
        Check(name: "policies and conversations", run: policies),
        Check(name: "records", run: records), Check(name: "record ranges", run: recordRanges),
        Check(name: "names", run: names),
        Check(name: "keys of messages come and go", run: contentKeys),
        Check(name: "the audit log keeps its order", run: audit),
        Check(name: "text and bytes of every kind", run: oddValues),
    ]

    @Sendable static func requestLife(_ make: Make) throws {
        let store = try make()
        try commit(store, (1...4).map { .insert(request($0)) }, [.insert(request(5, "carol"))])
        try commit(
            store, [.done(1, at: 100), .named(1, of: "alice", "r1")], [.dead(2, "no such nick", at: 200)],
            [.named(3, of: "alice", "r3")], [.done(99, at: 1)])
        var done = request(1)
        (done.state, done.remoteID, done.finishedAt) = (.done, "r1", 100)
        #expect(try store.request(1) == done)
        #expect(try store.request(2)?.reason == "no such nick")
        #expect(try store.requestCounts() == [.pending: 3, .done: 1, .dead: 1])
        #expect(try store.waitingRequests(of: AccountID(text: "alice")).map(\.id) == [3, 4])
        // What somebody has to send is not done.
        try commit(store, [.queue(.lease(id: 4, lease: 7))])
        #expect(try store.queuedRequest(4)?.state == .inFlight)
        #expect(try store.requests(states: [.pending], limit: 2).map(\.id) == [3, 4])
        #expect(try store.requests(states: [.dead, .done], limit: 9).map(\.id) == [1, 2])
        #expect(try store.requests(states: [], limit: 9).isEmpty)
        #expect(try store.requests(states: [.pending], limit: 2).map(\.remoteID) == ["r3", nil])
        try commit(store, [.queue(.prune(before: 200))])
        #expect(try store.request(1) == nil)
        #expect(try store.request(2) != nil)
        #expect(try store.requestCounts() == [.pending: 3, .dead: 1])
        // Only what is dead waits again, as it was, and is not pruned for when it had died.
        try commit(store, [2, 3, 99].map { .queue(.revive(id: $0, at: 1002)) })
        #expect(try store.request(2) == request(2))
        try commit(store, [.queue(.prune(before: 1000))])
        #expect(try store.requestCounts() == [.pending: 4])
        #expect(try store.queueContents().requests.map(\.id) == [2, 3, 4, 5])
    }

    @Sendable static func names(_ make: Make) throws {
        let store = try make()
        // The same to a String, and two names to whoever gave them.
        let names = ["zo\u{EB}", "zoe\u{308}"]
        let rows = names.map { RecordRow(kind: .peer, name: $0, value: Array($0.utf8)) }
        _ = try store.commit([rows.map { .putRecord($0) }])
        for (name, row) in zip(names, rows) { #expect(try store.record(.peer, name: name)?.value == row.value) }
        _ = try store.commit([[.removeRecord(.peer, name: names[0])]])
        #expect(try store.records(.peer).map { Array($0.name.utf8) } == [Array(names[1].utf8)])
    }

    @Sendable static func records(_ make: Make) throws {
        let store = try make()
        let rows = ["b", "a"].map { RecordRow(kind: .peer, name: $0, value: Array($0.utf8)) }
        try commit(store, rows.map { .putRecord($0) }, [.putRecord(RecordRow(kind: .preKey, name: "a", value: []))])
        #expect(try store.records(.peer) == rows.reversed())
        #expect(try store.record(.preKey, name: "a")?.value == [])
        try commit(store, [.putRecord(RecordRow(kind: .peer, name: "a", value: [9]))])
        #expect(try store.record(.peer, name: "a")?.value == [9])
        try commit(store, [.removeRecord(.peer, name: "a"), .removeRecord(.peer, name: "zz")])
        #expect(try store.records(.peer).map(\.name) == ["b"])
        #expect(try store.record(.preKey, name: "a") != nil)
    }

    /// Names are ordered by their bytes; the end of a range is not part of it.
    @Sendable static func recordRanges(_ make: Make) throws {
        let store = try make()
        let names = ["a 1", "a 2", "a 3", "b 1", "zo\u{EB}", "zoe\u{308}"]
        let rows = names.map { RecordRow(kind: .chatMessage, name: $0, value: Array($0.utf8)) }
        let other = RecordRow(kind: .chatIndex, name: "a 2", value: [])
        try commit(store, rows.reversed().map { .putRecord($0) }, [.putRecord(other)])
        #expect(try store.records(.chatMessage, from: "a 1", to: "a 3", last: 9) == Array(rows[0..<2]))
        #expect(try store.records(.chatMessage, from: "a ", to: "b", last: 2) == Array(rows[1..<3]))
        #expect(try store.records(.chatMessage, from: "b", to: "a", last: 9).isEmpty)
        #expect(try store.records(.chatMessage, from: "", to: "\u{FFFF}", last: 0).isEmpty)
        let all = try store.records(.chatMessage, from: "", to: "\u{FFFF}", last: 9).map { Array($0.name.utf8) }
        #expect(all == ["a 1", "a 2", "a 3", "b 1", "zoe\u{308}", "zo\u{EB}"].map { Array($0.utf8) })
    }

    @Sendable static func contentKeys(_ make: Make) throws {
        let store = try make()
        #expect(try store.oldestContentKeys() == nil)
        #expect(try store.contentKeys(of: [MessageID(1)]).isEmpty)
        func row(_ message: UInt64, _ envelope: UInt8, expires: Int64) -> ContentKeyRow {
            ContentKeyRow(
                message: MessageID(message), digest: EnvelopeDigest(of: [envelope]), expiresAt: expires,
                sealedKey: [envelope, 1])
        }
        // Two gateways may have used the same number.
        let rows = [
            row(1, 1, expires: 50), row(2, 2, expires: 10), row(2, 3, expires: 40),
            row(UInt64(Int64.max), 4, expires: 60),
        ]
        try commit(store, rows.map { .putContentKey($0) }, [.putContentKey(rows[0])])
        func kept(_ messages: [UInt64]) throws -> Set<[UInt8]> {
            Set(try store.contentKeys(of: messages.map { MessageID($0) }).map(\.sealedKey))
        }
        #expect(try kept([1, 2, 7, UInt64(Int64.max)]) == Set(rows.map(\.sealedKey)))
        #expect(try store.contentKeys(of: [MessageID(1), MessageID(1)]) == [rows[0]])
        #expect(try store.contentKeys(of: []).isEmpty)
        #expect(try kept([2]) == [rows[1].sealedKey, rows[2].sealedKey])
        #expect(try store.oldestContentKeys()! == (10, MessageID(1)))
        let before = MessageID(0)
        try commit(store, [.pruneContentKeys(expiredBy: 9, before: before, limit: 9)])
        #expect(try kept([1, 2, UInt64(Int64.max)]).count == 4)
        try commit(store, [.pruneContentKeys(expiredBy: 50, before: before, limit: 2)])
        #expect(try kept([1, 2, UInt64(Int64.max)]) == [rows[0].sealedKey, rows[3].sealedKey])
        #expect(try store.oldestContentKeys()! == (50, MessageID(1)))
        try commit(store, [.pruneContentKeys(expiredBy: 0, before: MessageID(1), limit: 9)])
        try commit(store, [.pruneContentKeys(expiredBy: 0, before: MessageID(2), limit: 9)])
        #expect(try kept([1, UInt64(Int64.max)]) == [rows[3].sealedKey])
        // Ids that no row holds are not used again.
        try commit(store, [.spendMessageID(900)], [.spendMessageID(800)])
        #expect(try store.load().highestMessage == 900)
    }

    @Sendable static func highestIDs(_ make: Make) throws {
        let store = try make()
        try commit(store, [.insert(request(41)), .insertDelivery(delivery(17))])
        try commit(store, [.insert(request(40)), .insertDelivery(delivery(16))])
        try commit(
            store, [.removeDelivery(sequence: 17), .removeDelivery(sequence: 16)],
            [.done(41, at: 1)],
            [.queue(.prune(before: 9))])
        #expect(try store.request(41) == nil)
        #expect(try store.queueContents().highest == 41)
        #expect(try store.load().highestDelivery == 17)
    }

    @Sendable static func deliveries(_ make: Make) throws {
        let store = try make()
        let bob = AccountID(text: "bob")
        try commit(store, [3, 1, 2].map { .insertDelivery(delivery($0)) }, [.insertDelivery(delivery(4, "carol"))])
        #expect(try store.deliveries(of: bob) == [delivery(1), delivery(2), delivery(3)])
        try commit(store, [.removeDelivery(sequence: 2)], [.removeDelivery(sequence: 77)])
        #expect(try store.deliveries(of: bob).map(\.sequence) == [1, 3])
    }

    @Sendable static func forgottenAccount(_ make: Make) throws {
        let store = try make()
        let guest = AccountID(text: "~1f")
        try commit(
            store,
            [.putDevice(device(1, guest.text)), .putDevice(device(2, "bob")), .putDevice(device(3, "carol"))],
            [(1, 2), (2, 1), (2, 3), (3, 2)].map { .putSession(session($0.0, $0.1, fence: 1)) },
            [.putConversation(conversation("~1f", "bob")), .putConversation(conversation("bob", "carol"))],
            [.putConversation(conversation("aaa", "~1f"))],
            [.insertDelivery(delivery(1, guest.text)), .insertDelivery(delivery(2))],
            [.insert(request(1, guest.text))])
        try commit(store, [.forgetAccount(guest)])
        #expect(try store.load().devices.map(\.id.value).sorted() == [2, 3])
        #expect(try !store.deviceAccounts(limit: 9).contains(guest))
        #expect(try store.session(session(1, 2, fence: 0).id) == nil)
        #expect(try store.session(session(2, 1, fence: 0).id) == nil)
        #expect(try store.session(session(2, 3, fence: 0).id) != nil)
        #expect(try store.conversations(limit: 9).map(\.id) == [conversation("bob", "carol").id])
        #expect(try store.deliveries(of: guest).isEmpty)
        #expect(try store.deliveries(of: AccountID(text: "bob")).count == 1)
        // The queue is told what becomes of requests.
        #expect(try store.request(1)?.state == .pending)
    }

    @Sendable static func deviceAccounts(_ make: Make) throws {
        let store = try make()
        #expect(try store.deviceAccounts(limit: 9).isEmpty)
        // The last two are equal to a `String`.
        let names = ["", "alice", "bob", "room #r", "zoe\u{308}", "zo\u{EB}"]
        var rows = names.enumerated().map { device(UInt64($0) + 1, $1) }
        rows.append(device(9, "alice"))
        try commit(store, rows.reversed().map { .putDevice($0) })
        #expect(try store.deviceAccounts(limit: 9) == names.map { AccountID(text: $0) })
        #expect(try store.deviceAccounts(limit: 2) == names.prefix(2).map { AccountID(text: $0) })
    }

    @Sendable static func sums(_ make: Make) throws {
        let store = try make()
        func evidence(_ software: String, asked: Bool, _ first: Int64, _ last: Int64) -> EvidenceRow {
            EvidenceRow(
                name: "alice", verified: true, software: software, asked: asked, firstSeen: first, lastSeen: last,
                registrations: 1)
        }
        try commit(
            store, [.addEvidence(evidence("irssi", asked: true, 10, 20))],
            [
                .addEvidence(evidence("irssi", asked: false, 15, 18)),
                .addEvidence(evidence("mobile", asked: false, 1, 30)),
            ])
        var merged = evidence("irssi", asked: true, 10, 20)
        merged.registrations = 2
        #expect(try store.evidence(limit: 9) == [evidence("mobile", asked: false, 1, 30), merged])
        #expect(try store.evidence(limit: 1).map(\.software) == ["mobile"])

        func observation(_ target: String, _ messages: Int, _ at: Int64) -> ObservationRow {
            ObservationRow(sender: "alice", target: target, recipient: "outsider", messages: messages, lastSeen: at)
        }
        try commit(store, [.addObservation(observation("x", 2, 5)), .addObservation(observation("y", 9, 6))])
        try commit(store, [.addObservation(observation("x", 3, 7))])
        #expect(try store.observations(limit: 9) == [observation("y", 9, 6), observation("x", 5, 7)])

        try commit(
            store,
            [(3, "b"), (3, "a"), (2, "a"), (3, "a")].map { .addTally(TallyRow(hour: $0.0, kind: $0.1, count: 2)) })
        let expected = [TallyRow(hour: 3, kind: "a", count: 4), TallyRow(hour: 3, kind: "b", count: 2)]
        #expect(try store.tallies(sinceHour: 3) == expected)
        #expect(try store.tallies(sinceHour: 0).count == 3)
    }

    @Sendable static func policies(_ make: Make) throws {
        let store = try make()
        let alice = AccountID(text: "alice")
        try commit(store, [.setPolicy(nil, .observe), .setPolicy(alice, .hosted)], [.setPolicy(alice, .required)])
        let policies = try store.load().policies
        #expect(policies.count == 2)
        #expect(policies.first { $0.account == nil }?.policy == .observe)
        #expect(policies.first { $0.account == alice }?.policy == .required)
        try commit(store, [.setPolicy(alice, nil)], [.setPolicy(nil, nil)])
        #expect(try store.load().policies.isEmpty)

        let rows = [conversation("bob", "alice", since: 1), conversation("bob", "carol", since: 2)]
        try commit(store, rows.reversed().map { .putConversation($0) })
        #expect(try store.conversations(limit: 9) == rows)
        #expect(try store.conversations(limit: 1) == [rows[0]])
        var raised = rows[1]
        raised.latch = .device
        try commit(store, [.removeConversation(rows[0].id)], [.putConversation(raised)])
        #expect(try store.load().conversations == [raised])
    }

    @Sendable static func audit(_ make: Make) throws {
        let store = try make()
        let rows = (1...3).map { AuditRow(at: 10 - Int64($0), actor: "root", action: "policy.set", detail: "\($0)") }
        try commit(store, rows.map { .audit($0) })
        #expect(try store.auditLog(limit: 9) == rows)
        #expect(try store.auditLog(limit: 2) == Array(rows.suffix(2)))
    }

    @Sendable static func oddValues(_ make: Make) throws {
        let store = try make()
        var odd = request(7, "Ünïcödé\u{0}'; DROP TABLE request; --", peer: "")
        odd.bodies = []
        odd.reason = "🪢"
        let large = session(5, 6, fence: UInt64(Int64.max), (0..<100_000).map { UInt8(truncatingIfNeeded: $0) })
        try commit(store, [.insert(odd)], [.putSession(large)], [.putSession(session(8, 9, fence: 1, []))])
        #expect(try store.request(7) == odd)
        #expect(try store.waitingRequests(of: AccountID(text: odd.account)) == [odd])
        #expect(try store.session(large.id) == large)
        #expect(try store.session(session(8, 9, fence: 0).id)?.sealedState == [])
    }
}
