import Envelope
import HTTPCodec
import JSONGateway
import NIOCore
import RequestQueue
import Synchronization
import Testing

/// Clients that wait for the outcome of a write, from the moment at which it is handed over.
@Suite struct WriteWaiterTests {
    /// What a client was notified of.
    private final class Client: Sendable {
        private let outcomes = Mutex<[WriteOutcome]>([])

        var notified: [WriteOutcome] { outcomes.withLock { $0 } }

        func makeWaiter() -> WriteWaiter { WriteWaiter { outcome in self.outcomes.withLock { $0.append(outcome) } } }
    }

    private let waiters = WriteWaiters()
    private let token = RequestToken(high: 1, low: 1)
    private let other = RequestToken(high: 1, low: 2)
    private let refusal = WriteOutcome.answered(ResponseHead(401), ByteBuffer())

    @Test func aClientIsToldThatItsWriteWaitsOnceItIsStored() {
        let client = Client()
        let waiter = client.makeWaiter()
        waiters.expect(token, waiter)
        waiter.giveUp()
        #expect(client.notified == [])
        #expect(!waiters.stored(token, nil, of: "alice"))
        #expect(client.notified == [.waits])
        waiters.end(token, RequestOutcome(.success(status: 200)))
        #expect(client.notified == [.waits], "once")
    }

    /// One that is sent again after it has failed is not new, and neither is one of an earlier process.
    @Test func aWriteIsExpectedUntilItHasEnded() {
        #expect(!waiters.expects(token))
        for sendsAgain in [false, true] {
            waiters.expect(token, nil)
            #expect(!waiters.stored(token, nil, of: "alice") && waiters.expects(token) && !waiters.expects(other))
            if sendsAgain { waiters.forget(token) } else { waiters.end(token, RequestOutcome(.success(status: 200))) }
            #expect(!waiters.expects(token))
        }
    }

    @Test func aClientThatGivesUpLaterIsToldAtOnce() {
        let client = Client()
        let waiter = client.makeWaiter()
        waiters.expect(token, waiter)
        #expect(!waiters.stored(token, nil, of: "alice"))
        #expect(client.notified == [])
        waiter.giveUp()
        #expect(client.notified == [.waits])
    }

    @Test func atTheEndOfTheProcessNobodyIsToldOfAWriteThatIsNotStored() {
        let clients = (0..<3).map { _ in Client() }
        waiters.expect(token, clients[0].makeWaiter())
        waiters.expect(other, clients[1].makeWaiter())
        _ = waiters.stored(token, nil, of: "alice")
        waiters.dismiss()
        #expect(clients.map(\.notified) == [[.waits], [], []])
        let last = RequestToken(high: 1, low: 3)
        waiters.expect(last, clients[2].makeWaiter())
        _ = waiters.stored(other, nil, of: "alice")
        #expect(clients.map(\.notified) == [[.waits], [.waits], []])
        waiters.drop(last)
        _ = waiters.stored(last, nil, of: "alice")
        #expect(clients[2].notified == [], "it was refused, and gets a reply")
    }

    @Test func anOutcomeNamesTheSealedMessage() {
        let client = Client()
        waiters.expect(token, client.makeWaiter())
        _ = waiters.stored(token, MessageID(7), of: "alice")
        waiters.end(token, RequestOutcome(.success(status: 200), body: [1]))
        #expect(client.notified == [.answered(ResponseHead(200), ByteBuffer(bytes: [1]), sealed: MessageID(7))])
    }

    /// The refusal is for the writes that wait in the queue, and this one is not there yet.
    @Test func aCredentialThatIsRefusedBeforeTheWriteIsStoredIsAskedFor() {
        let client = Client()
        waiters.expect(token, client.makeWaiter())
        waiters.expect(other, nil)
        #expect(waiters.refuse("alice", refusal, []).isEmpty)
        #expect(!waiters.stored(token, nil, of: "bob"))
        #expect(waiters.stored(token, nil, of: "alice"))
        #expect(!waiters.stored(other, nil, of: "alice"), "its client was answered")
        #expect(client.notified == [])
    }
}
