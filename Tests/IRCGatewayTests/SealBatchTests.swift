import CommitLoop
import Envelope
import IRCGateway
import Protection
import RequestQueue
import StorePort
import Testing
import Vault

/// Messages of one transaction.
@Suite struct SealBatchTests {
    private let connection = ConnectionID(1)

    private func job(_ ticket: UInt64, capacity: Int = 400) -> IRCJob {
        .seal(
            SealJob(
                connection: connection, ticket: ticket, sender: .services("alice"), recipient: .services("bob"),
                target: "bob", senderName: "alice", recipientName: "bob", verb: "PRIVMSG",
                body: Body(text: Array("text \(ticket)".utf8)), capacity: capacity))
    }

    /// One that cannot be sealed does not take the ratchet back behind those that were: their keys would be used twice.
    @Test(arguments: [true, false]) func aFailedOneTakesNoneBack(_ isNew: Bool) throws {
        let world = try World(.hosted)
        var sealed: [Request] = []
        func run(_ jobs: [IRCJob]) throws {
            let batch = world.participants.prepare(jobs, now: world.now)
            let committed = try world.store.commit(batch.groups)
            for reply in world.participants.complete(batch, committed: committed, now: world.now) {
                if case .sealed(_, let request, _, _) = reply.reply { sealed.append(request) }
            }
        }
        if !isNew { try run([job(1)]) }
        try run([job(2), job(3, capacity: 1), job(4)])
        try run([job(5)])
        #expect(sealed.count == (isNew ? 3 : 4))
        var texts: [String] = []
        for request in sealed {
            let open = OpenJob(
                connection: connection, ticket: 9, account: .services("bob"), recipients: [.services("bob")],
                senders: [.services("alice")], envelope: try #require(Armour.joined(request.bodies)), lineHead: [])
            let batch = world.participants.prepare([.open(open)], now: world.now)
            for reply in world.participants.complete(
                batch, committed: try world.store.commit(batch.groups), now: world.now)
            {
                if case .opened(_, let opened) = reply.reply {
                    texts.append(String(decoding: opened.body.text, as: UTF8.self))
                }
            }
        }
        #expect(texts == (isNew ? [] : ["text 1"]) + ["text 2", "text 4", "text 5"])
    }
}
