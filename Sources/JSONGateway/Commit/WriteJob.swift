// The jobs about queued writes, and the queue's turns. Values only: they cross threads.

package import Protection
package import RequestQueue

/// A lookup of an earlier write, so that a write that a client repeats is sent once.
package struct FindWriteJob: Sendable {
    package var connection: ConnectionID
    package var account: AccountID
    package var key: WriteKey
    /// The mark of the credential that came with the request, see ``WriteKeys/mark(of:)``.
    package var mark: String

    package init(connection: ConnectionID, account: AccountID, key: WriteKey, mark: String) {
        (self.connection, self.account, self.key, self.mark) = (connection, account, key, mark)
    }
}

/// A write to queue. If it has a text to seal, sealing, content key and request are one unit of work.
package struct WriteJob: Sendable {
    package var connection: ConnectionID
    /// Names the write: sixteen random bytes.
    package var token: RequestToken
    package var write: QueuedWrite
    /// The mark of the credential to send it with.
    package var mark: String

    package init(connection: ConnectionID, token: RequestToken, write: QueuedWrite, mark: String) {
        (self.connection, self.token, self.write, self.mark) = (connection, token, write, mark)
    }
}

extension WriteJob {
    /// The reply to the client's connection.
    func reply(_ result: Result<KnownWrite, ExchangeRefusal>) -> JSONReply {
        write.frame.map { .queuedFrame(ticket: $0, result) } ?? .queued(token, result)
    }
}

/// What the queue does after a commit, for the part of the program that sends its requests.
package struct QueueTurn: Sendable {
    /// The committed batch; nil if the commit failed.
    package var batch: QueueBatch?
    /// The answers that waited for this commit.
    package var answers: QueueAnswers
    /// When the queue has something to do next, in milliseconds of uptime; nil if nothing is known.
    package var wake: Int64?
}

/// The queue's part of a batch, until it is committed.
package struct QueueClosing: Sendable {
    var batch: QueueBatch
    var answers: [QueueAnswer]
}
